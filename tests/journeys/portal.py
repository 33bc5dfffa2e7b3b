"""The portal as a person starts it: the real command, real processes, one data folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a-password-for-the-test"


def free_port() -> int:
    """A port that nobody holds now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(what: str, probe: Callable[[], Any], *, seconds: float, every: float = 0.2) -> Any:
    """Poll until ``probe`` answers something true; the answer. Fails naming what was waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = probe()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"after {seconds:.0f} s still no {what}")


@dataclass
class Answer:
    """Status, headers and body of an HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def fetch(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """One request without following redirects; HTTP errors are answers, not exceptions."""
    request = urllib.request.Request(url, method=method, headers=dict(headers or {}), data=body)
    try:
        with _opener.open(request, timeout=30) as response:
            return Answer(response.status, dict(response.headers), response.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, dict(error.headers), error.read())


@dataclass
class Portal:
    """``python -m mlportal up`` with a folder of its own; ``prefix`` is a command that becomes it, as another user."""

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    port: int = field(default_factory=free_port)
    ssh_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    _token: str = ""

    @property
    def url(self) -> str:
        """The portal's own address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What the command printed."""
        return self.home.parent / f"{self.home.name}.log"

    def environ(self) -> dict[str, str]:
        """The environment of the command, and of what is to find the same portal."""
        env = {
            **os.environ,
            "PORTAL_HOME": str(self.home),
            "PORTAL_HTTP_PORT": str(self.port),
            "PORTAL_SSH_PORT": str(self.ssh_port),
            "PORTAL_ADMIN_PASSWORD": PASSWORD,
            **self.env,
        }
        for name in ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "PYTEST_CURRENT_TEST"):
            env.pop(name, None)
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
        return env

    def start(self, *, seconds: float = 240) -> None:
        """Start and wait until it is ready (the first start builds the images' environments)."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "mlportal", "up"],
                cwd=ROOT,
                env=self.environ(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

        def ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the portal ended:\n{self.log.read_text()[-4000:]}"
            try:
                return fetch(f"{self.url}/readyz").status == 200
            except OSError:
                return False

        wait_until("portal that is ready", ready, seconds=seconds)

    def stop(self, *, seconds: float = 60) -> int:
        """Ctrl-C; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=seconds)

    def api(self, method: str, path: str, body: Any = None, *, token: str | None = None, key: str = "") -> Answer:
        """A REST call as the administrator (or with another token)."""
        headers = {"Authorization": f"Bearer {token or self.token()}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        return fetch(f"{self.url}/api/v1/{path}", method=method, headers=headers, body=data)

    def token(self, user: str = "admin", password: str = PASSWORD) -> str:
        """A token made the way a script makes one; kept for the administrator."""
        if self._token and user == "admin":
            return self._token
        import base64

        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        answer = fetch(
            f"{self.url}/api/v1/tokens",
            method="POST",
            headers={"Authorization": f"Basic {basic}", "Content-Type": "application/json"},
            body=json.dumps({"name": "test"}).encode(),
        )
        assert answer.status == 201, answer.body
        token: str = answer.json["token"]
        if user == "admin":
            self._token = token
        return token

    def at_instance(
        self,
        host: str,
        path: str,
        *,
        key: str = "",
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A request to an instance's own host, as a program makes it: to loopback with that Host."""
        sent = {"Host": f"{host}:{self.port}", **(headers or {})}
        if key:
            sent["Authorization"] = f"token {key}"
        return fetch(f"http://127.0.0.1:{self.port}{path}", method=method, headers=sent, body=body)
