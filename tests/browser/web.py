"""The portal's pages without a cluster: database, Redis and the web process, filled with rows in every state."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]

from mlportal.embedded import postgres, redis  # noqa: E402 - the source roots come first
from mlportal.paths import Home  # noqa: E402
from mlportal.program import Program, started  # noqa: E402

PASSWORD = "a password for looking"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A running portal."""

    origin: str
    environ: dict[str, str]


def free_port() -> int:
    """A port that nobody holds now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def site(*, port: int = 0) -> Iterator[Site]:
    """Start, fill, hand over; everything is gone afterwards."""
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="mlportal-web-") as folder, ExitStack() as stack:
        home = Home(root=Path(folder))
        for made in (home.run, home.secrets, home.log):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)
        inherited = [name for name in os.environ if name.startswith(("PORTAL_", "DATABASE_", "REDIS_"))]
        environ = {
            **os.environ,
            **dict.fromkeys(inherited, ""),  # the portal reads an empty variable as none
            "PORTAL_HOME": folder,
            "PORTAL_HTTP_PORT": str(port),
            "PORTAL_ADMIN_PASSWORD": PASSWORD,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "DJANGO_SETTINGS_MODULE": "mlportal.settings",
        }
        postgres.initialise(data=home.postgres_data, fsync=False)
        database = postgres.program(data=home.postgres_data, run=home.run, fsync=False)
        stack.enter_context(started(database, log=home.log / "postgres"))
        hints = redis.program(data=home.redis_data, socket=home.redis_socket)
        stack.enter_context(started(hints, log=home.log / "redis"))
        _run(environ, "-m", "mlportal", "prepare")
        _run(environ, "-m", "tests.browser.sample")
        web = Program(
            name="web",
            argv=(
                sys.executable,
                "-m",
                "uvicorn",
                "mlportal.asgi:application",
                "--port",
                str(port),
                "--lifespan",
                "off",
                "--log-level",
                "warning",
            ),
            ready=lambda: _answers(port),
            environ=environ,
            directory=ROOT,
        )
        stack.enter_context(started(web, log=home.log / "web"))
        yield Site(origin=f"http://127.0.0.1:{port}", environ=environ)
        for line in (home.log / "web").read_text(encoding="utf-8", errors="replace").splitlines():
            if "Traceback" in line:
                sys.stderr.write(f"{line[:120]} … {line[-300:]}\n")


def _run(environ: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], env=environ, cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stdout[-500:]}{done.stderr[-1500:]}")


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
