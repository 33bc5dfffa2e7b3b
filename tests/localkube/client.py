"""A small client of the API for tests: one call a request, the answer with its code and warnings."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Answer:
    code: int
    body: Any
    warnings: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        return self.body["message"]


class Client:
    """Talks to one server, by default to the localkube of a folder with its token."""

    def __init__(self, home: Path, address: str) -> None:
        self.address = address
        self.token: str | None = (home / "token").read_text()
        self.context = ssl.create_default_context(cafile=home / "ca.crt")

    def request(self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPSConnection(self.address, context=self.context, timeout=90)
        sent = {"Content-Type": "application/json"}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        sent |= headers or {}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, body=data, headers=sent)
            response = connection.getresponse()
            raw = response.read()
            warnings = response.headers.get_all("Warning") or []
        finally:
            connection.close()
        try:
            return Answer(response.status, json.loads(raw), warnings)
        except ValueError:
            return Answer(response.status, raw.decode(), warnings)

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any) -> Answer:
        return self.request("POST", path, body)

    def put(self, path: str, body: Any) -> Answer:
        return self.request("PUT", path, body)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.request("DELETE", path, body)

    def patch(self, path: str, body: Any, kind: str = "merge-patch") -> Answer:
        return self.request("PATCH", path, body, headers={"Content-Type": f"application/{kind}+json"})

    def apply(self, path: str, body: Any, *, manager: str = "mlportal", force: bool = False) -> Answer:
        query = f"?fieldManager={manager}&force={'true' if force else 'false'}"
        return self.request("PATCH", path + query, body, headers={"Content-Type": "application/apply-patch+yaml"})

    def watch(self, path: str) -> list[tuple[str, Any]]:
        """The events of a watch that ends by itself (timeoutSeconds in the path)."""
        answer = self.get(path)
        assert answer.code == 200, answer
        text = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        events = [json.loads(line) for line in text.splitlines()]
        return [(event["type"], event["object"]) for event in events]

    def until(self, path: str, wanted: Callable[[Any], bool], *, seconds: float = 90.0) -> Any:
        """Read a path until its body satisfies a condition, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self.get(path)
            if answer.code == 200 and wanted(answer.body):
                return answer.body
            assert time.monotonic() < deadline, f"{path} stayed {answer}"
            time.sleep(0.01)

    def gone(self, path: str, *, seconds: float = 90.0) -> None:
        """Wait until a path answers 404."""
        deadline = time.monotonic() + seconds
        while (answer := self.get(path)).code != 404:
            assert time.monotonic() < deadline, f"{path} stayed {answer}"
            time.sleep(0.01)
