"""The file of keys outside the database: whoever has a copy of the database alone can decrypt nothing."""

from __future__ import annotations

import base64
import json
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path


class BadSecretFile(ValueError):
    """The file cannot be used: unreadable, damaged, or readable by others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Secrets:
    """Keys of one installation. `encryption_keys`: Fernet keys, the first encrypts, all decrypt."""

    django_key: str
    encryption_keys: tuple[str, ...]


def ensure(path: Path) -> Secrets:
    """Read the keys; make them if there are none.

    Safe when several processes start at once: the file appears whole or not at all, and the first one wins.
    Raises BadSecretFile.
    """
    if not path.exists():
        _make(path)
    return load(path)


def load(path: Path) -> Secrets:
    """Read the keys.

    Raises BadSecretFile when they are missing, damaged, or readable by others than the owner.
    """
    try:
        if _open_to_others(path.stat()):
            raise BadSecretFile(f"{path} is readable by others; run: chmod 600 {path}")
        content = json.loads(path.read_text(encoding="utf-8"))
        return Secrets(django_key=content["django_key"], encryption_keys=tuple(content["encryption_keys"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadSecretFile):
            raise
        raise BadSecretFile(f"{path} cannot be read as the portal's keys: {error}") from error


def _open_to_others(found: os.stat_result) -> bool:
    """Whether more than this user reads the file.

    Kubernetes gives a Secret's files to root and lets the group of the pod read them: that group is this one pod.
    """
    allowed = (
        0o040 if found.st_uid == 0 and os.geteuid() != 0 and found.st_gid in {os.getegid(), *os.getgroups()} else 0
    )
    return bool(stat.S_IMODE(found.st_mode) & 0o077 & ~allowed)


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = {
        "django_key": secrets.token_urlsafe(48),
        "encryption_keys": [base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()],
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process made it in the meantime; ours is thrown away
    finally:
        draft.unlink()
