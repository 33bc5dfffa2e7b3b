"""Digests of what slow steps depend on, so that a warm start skips those for which nothing changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlportal.env import Environment
from mlportal.paths import ROOT


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamps:
    """One digest per step."""

    migrate: str
    static: str
    bootstrap: str


def current(environment: Environment) -> Stamps:
    """Digests of the files and settings as they are now. About 20 ms."""
    apps = ROOT / "apps"
    locked = ROOT / "requirements.txt"
    settings = (environment.cluster, environment.apps_domain, str(environment.http_port), environment.database.url())
    return Stamps(
        migrate=_digest([*apps.glob("*/migrations/*.py"), locked], environment.database.url()),
        static=_digest([*_below(ROOT / "static"), ROOT / "package-lock.json", Path(__file__).with_name("browser.py")]),
        bootstrap=_digest([*apps.glob("*/management/commands/bootstrap.py"), environment.kubeconfig], *settings),
    )


def read(file: Path) -> Stamps | None:
    """The digests of the last preparation; None when there was none."""
    try:
        return Stamps(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write(file: Path, stamps: Stamps) -> None:
    """Remember that everything was prepared for these digests."""
    content = {"migrate": stamps.migrate, "static": stamps.static, "bootstrap": stamps.bootstrap}
    file.write_text(json.dumps(content), encoding="utf-8")


def _below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _digest(files: Iterable[Path], *texts: str) -> str:
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(str(file).encode())
        total.update(file.read_bytes() if file.is_file() else b"absent")
    for text in texts:
        total.update(text.encode() + b"\0")
    return total.hexdigest()
