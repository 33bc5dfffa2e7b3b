"""What the portal asks of a cluster, written down request by request as the API server's authorization sees it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from kubekit import client, streams
from kubekit.errors import Forbidden, KubeError

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/.))?"
    r"/(?P<resource>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
FORBIDDEN = 403
NEW_NAME = "nobody-made-this-yet"


@dataclass(frozen=True, order=True)
class Use:
    """One verb on one resource, as a ClusterRole names them."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


@dataclass(frozen=True)
class Request:
    """A request that can be sent again."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any] | None
    content_type: str

    def refusal(self, server: client.Cluster) -> str:
        """Send it again where it is not allowed; the server's words. Fails when it is let through."""
        with pytest.raises(Forbidden) as caught:
            server._request(self.method, self.path, self.query, body=self.body, content_type=self.content_type)
        return caught.value.message

    def for_new_name(self) -> Request:
        """An apply of an object that is not there, which is a creation."""
        assert self.body is not None
        body = {**self.body, "metadata": {**self.body["metadata"], "name": NEW_NAME}}
        path = f"{self.path.rpartition('/')[0]}/{NEW_NAME}"
        return Request(self.method, path, self.query, body, self.content_type)


def uses_of(rules: list[dict[str, Any]]) -> set[Use]:
    """Every verb of a ClusterRole's rules."""
    return {
        Use(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Recorder:
    """Notes the first request of each use, of all connections of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first: dict[Use, Request] = {}
        self.refused: set[Use] = set()
        send, get, websocket = client.Cluster._send, streams.Streams._get, streams.Streams._websocket

        def _send(server: Any, method: str, url: str, headers: Any, body: Any) -> Any:
            answer = send(server, method, url, headers, body)
            given = json.loads(json.dumps(body)) if body is not None else None
            self.note(method, url, given, headers.get("Content-Type", ""), status=answer.status)
            return answer

        async def _get(streamer: Any, path: str, query: Mapping[str, str], read_timeout_s: float | None) -> Any:
            url = f"{path}?{urlencode(query)}"
            try:
                response = await get(streamer, path, query, read_timeout_s)
            except KubeError as error:
                self.note("GET", url, None, "", status=error.status)
                raise
            self.note("GET", url, None, "", status=response.status)
            return response

        def _websocket(streamer: Any, path: str, *given: Any, **more: Any) -> Any:
            # A web socket is a GET; newer servers ask for `create` besides.
            for method in ("GET", "POST"):
                self.note(method, path, None, "", status=101)
            return websocket(streamer, path, *given, **more)

        monkeypatch.setattr(client.Cluster, "_send", _send)
        monkeypatch.setattr(streams.Streams, "_websocket", _websocket)
        monkeypatch.setattr(streams.Streams, "_get", _get)

    def note(self, method: str, url: str, body: Any, content_type: str, *, status: int) -> None:
        """One request that was answered."""
        parts = urlsplit(url)
        found = _PATH.fullmatch(parts.path)
        if found is None or found["resource"].startswith("selfsubject"):
            return  # /version, and asking about oneself, are everybody's
        query = dict(parse_qsl(parts.query))
        verb = _VERBS.get(method) or ("watch" if query.get("watch") else "get" if found["name"] else "list")
        resource = found["resource"] + (f"/{found['subresource']}" if found["subresource"] else "")
        use = Use(found["group"] or "", resource, verb)
        if status == FORBIDDEN:
            self.refused.add(use)
        query.pop("follow", None)
        request = Request(method, parts.path, query, body, content_type)
        self.first.setdefault(use, request)
        if method == "PATCH" and status == 201:
            self.first.setdefault(Use(use.group, use.resource, "create"), request.for_new_name())
