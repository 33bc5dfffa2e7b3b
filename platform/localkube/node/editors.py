"""VS Code in the browser, an optional part of an image.

It comes as source that is compiled for minutes, with tools that running the portal does not need, and is larger than
all the rest of the image. So neither a start nor a test waits for it: a command installs it into the image cache, once
per machine and recipe, and every container that starts after that has it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

PLACE: Final = "/opt/code-server"
"""Where containers have it."""
_TOOLS: Final = (("g++", "g++"), ("make", "make"), ("pkg-config", "pkg-config"))
_HEADER: Final = Path("/usr/include/gssapi/gssapi.h")
_LONGEST_S: Final = 3600


class CannotInstall(RuntimeError):
    """The text says what is missing and how to get it."""


def cache_of(home: Path) -> Path:
    """The image cache of a localkube with this home; one may be shared by many."""
    shared = os.environ.get("LOCALKUBE_IMAGE_CACHE")
    return Path(shared) if shared else home / "images"


def recipes(table: Path) -> list[Path]:
    """The folders of recipes that images of the table name."""
    entries = tomllib.loads(table.read_text())["images"].values()
    return sorted({table.parent / entry["folder"] / entry["editor"] for entry in entries if "editor" in entry})


def key_of(recipe: Path) -> str:
    """Its entry in the image cache: by the content of the recipe and the kind of machine."""
    digest = hashlib.sha256(platform.machine().encode())
    for path in sorted(path for path in recipe.iterdir() if path.is_file()):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return f"editor-{digest.hexdigest()}"


def installed(cache: Path, recipe: Path) -> Path | None:
    """The folder for containers, None when it is not installed."""
    place = cache / key_of(recipe) / "code-server"
    return place if (place / "version").exists() else None


def install(cache: Path, recipe: Path) -> Path:
    """Install it unless it is there. Raises CannotInstall; takes minutes."""
    missing = [package for program, package in _TOOLS if shutil.which(program) is None]
    missing += [] if _HEADER.exists() else ["libkrb5-dev"]
    cache.mkdir(parents=True, exist_ok=True)
    key = key_of(recipe)
    with (cache / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = installed(cache, recipe)
        if found is not None:
            return found
        if missing:
            raise CannotInstall(f"VS Code is compiled here and needs: apt-get install {' '.join(missing)}")
        work, place = cache / f"{key}.work", cache / key
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)
        command = ["/bin/sh", "-eu", str(recipe / "install"), str(work / "code-server")]
        done = subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, timeout=_LONGEST_S, check=False)
        if done.returncode != 0:
            shutil.rmtree(work, ignore_errors=True)
            raise CannotInstall(f"installing VS Code failed with exit code {done.returncode}; the lines above say why")
        work.rename(place)
        return place / "code-server"
