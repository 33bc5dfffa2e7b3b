"""Set-up of a checkout, before any package is there: `python3 -I platform/mlportal/setup.py runtime|dev`.

Runs on the bare Python of the machine, so it uses the standard library alone. Each step has a stamp, a digest of what
it depends on; while that holds the step is skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
BIN = VENV / "bin"
STAMPS = VENV / "stamps"
NODE_MODULES = ROOT / "node_modules"
LOCALE = ROOT / "platform" / "mlportal" / "locale"

OLDEST_PYTHON = (3, 11)

MACHINES_TRUST = {"UV_SYSTEM_CERTS": "1", "NODE_USE_SYSTEM_CA": "1"}
"""uv and npm believe the certificates that this machine believes, as pip does: a company's proxy may have its own."""

DEBIAN_RUNTIME = (
    ("bubblewrap", "/usr/bin/bwrap", "keeps the programs of users apart"),
    ("passt", "/usr/bin/pasta", "gives those programs a network of their own"),
    ("openssh-server", "/usr/sbin/sshd", "lets people reach their instances over SSH"),
)
DEBIAN_DEV = (
    ("chromium", "/usr/bin/chromium", "the browser that tests use"),
    ("fonts-noto-cjk", "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc", "Chinese in screenshots"),
    ("gettext", "/usr/bin/xgettext", "finds words that are not translated"),
    ("openssh-client", "/usr/bin/ssh", "enters instances as people do"),
    ("rsync", "/usr/bin/rsync", "copies folders over SSH, as people do"),
    ("git", "/usr/bin/git", "is used over SSH, as people do"),
)
"""Package, a file it brings, and why it is needed."""


class CannotSetUp(RuntimeError):
    """The set-up cannot go on; the text is one line that says what to do."""


def main(arguments: Sequence[str]) -> int:
    """Bring the checkout up to date for running (`runtime`) or also for tests and checks (`dev`)."""
    dev = list(arguments) == ["dev"]
    try:
        if sys.version_info < OLDEST_PYTHON:
            raise CannotSetUp(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")
        debian(dev=dev)
        virtual_environment(dev=dev)
        command_line()
        browser_packages()
        translations()
    except CannotSetUp as error:
        print(f"✗ set-up: {error}", file=sys.stderr, flush=True)
        return os.EX_UNAVAILABLE
    return os.EX_OK


def say(what: str) -> None:
    """One line for a step that takes time."""
    print(f"· set-up: {what}", flush=True)


def run(command: Sequence[str], *, failed: str, environ: dict[str, str] | None = None) -> None:
    """Run a step quietly.

    Raises CannotSetUp with `failed` and the end of what the command said.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**MACHINES_TRUST, **os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotSetUp(f"{failed}\n{(done.stdout + done.stderr).strip()[-3000:]}")


def debian(*, dev: bool) -> None:
    """Programs of the distribution: installed as root with apt-get, else named in one line."""
    wanted = (*DEBIAN_RUNTIME, *DEBIAN_DEV) if dev else DEBIAN_RUNTIME
    missing = [(package, why) for package, file, why in wanted if not Path(file).exists() and not _on_path(file)]
    if not missing:
        return
    names = [package for package, _ in missing]
    reasons = "; ".join(f"{package} {why}" for package, why in missing)
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        how = f"sudo apt-get install -y --no-install-recommends {' '.join(names)}"
        raise CannotSetUp(f"missing programs ({reasons}). Run: {how}")
    say(f"installing {', '.join(names)} with apt-get ({reasons})")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    install = (apt, "install", "-y", "--no-install-recommends", *names)
    try:
        run(install, failed="", environ=quiet)
    except CannotSetUp:  # the lists of packages may be old or absent
        run((apt, "update"), failed="apt-get update failed.", environ=quiet)
        run(install, failed=f"apt-get could not install {', '.join(names)}.", environ=quiet)


def _on_path(file: str) -> bool:
    return file.startswith(("/usr/bin/", "/usr/sbin/")) and shutil.which(Path(file).name) is not None


def virtual_environment(*, dev: bool) -> None:
    """The virtual environment, exactly as pinned. One for tests also serves for running, and stays one for tests."""
    dev = dev or (STAMPS / "python-dev").is_file()
    files = [ROOT / "requirements.txt", *([ROOT / "requirements-dev.txt"] if dev else [])]
    key = digest([ROOT / "requirements.txt", ROOT / "requirements-dev.txt"], sys.version, str(VENV))
    stamp = STAMPS / ("python-dev" if dev else "python")
    if stamp.is_file() and stamp.read_text() == key:
        return
    if not (BIN / "python").exists() or not _same_place():
        say("making the virtual environment in .venv")
        run(
            (sys.executable, "-m", "venv", "--clear", str(VENV)),
            failed="python3 -m venv failed; on Debian and Ubuntu run: sudo apt-get install -y python3-venv",
        )
    version = _pinned("uv")
    say(f"installing the packages of {' and '.join(file.name for file in files)}")
    run((str(BIN / "python"), "-m", "pip", "install", "-q", f"uv=={version}"), failed="pip could not install uv.")
    run(
        (str(BIN / "uv"), "pip", "sync", "-q", *map(str, files)),
        failed="The packages could not be installed.",
        environ={"VIRTUAL_ENV": str(VENV), "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"},
    )
    STAMPS.mkdir(parents=True, exist_ok=True)
    stamp.write_text(key)


def command_line() -> None:
    """`.venv/bin/portalctl`, which runs from any folder."""
    platform = ROOT / "platform"
    text = f'#!/bin/sh\nPYTHONPATH="{platform}" exec "{BIN / "python"}" -m portalctl "$@"\n'
    file = BIN / "portalctl"
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)


def _same_place() -> bool:
    """Whether the virtual environment was made where it is now: a copied or moved one has the old paths in it."""
    pip = BIN / "pip"
    return pip.is_file() and pip.read_text(errors="replace").startswith(f"#!{BIN}/")


def _pinned(package: str) -> str:
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        if name == package:
            return version.strip()
    raise CannotSetUp(f"requirements.txt does not pin {package}.")


def browser_packages() -> None:
    """Browser libraries from npm, through the Node of a wheel; no script of theirs is run."""
    key = digest([ROOT / "package.json", ROOT / "package-lock.json"])
    stamp = NODE_MODULES / ".stamp"
    if stamp.is_file() and stamp.read_text() == key:
        return
    say("installing the browser libraries of package-lock.json")
    run(
        (str(BIN / "npm"), "ci", "--no-progress", "--ignore-scripts", "--no-audit", "--no-fund"),
        failed="npm could not install the browser libraries.",
        environ={"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"},
    )
    stamp.write_text(key)


def translations() -> None:
    """Compile the words; the compiled files are not committed."""
    for words in LOCALE.glob("*/LC_MESSAGES/*.po"):
        compiled = words.with_suffix(".mo")
        if not compiled.exists() or compiled.stat().st_mtime < words.stat().st_mtime:
            script = "import polib, sys; polib.pofile(sys.argv[1]).save_as_mofile(sys.argv[2])"
            run(
                (str(BIN / "python"), "-c", script, str(words), str(compiled)),
                failed=f"{words.relative_to(ROOT)} could not be compiled.",
            )


def digest(files: Sequence[Path], *texts: str) -> str:
    """Of the files' contents and some texts."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.read_bytes())
    for text in texts:
        total.update(text.encode() + b"\0")
    return total.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
