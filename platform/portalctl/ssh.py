"""SSH: one's public keys, and the way to an instance with the `ssh` of this machine."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from portalctl.commands import Usage, find, say
from portalctl.rest import Portal, Refused

FOLDER = Path("~/.ssh")
CONFIG, KNOWN_HOSTS = "mlportal.conf", "mlportal_known_hosts"
INCLUDE = f"Include {CONFIG}"


def add_key(portal: Portal, options: argparse.Namespace) -> int:
    """Register the public key in a file."""
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{options.file} cannot be read: {error}") from error
    made = portal.call("POST", "ssh-keys", {"key": text, "name": options.name}, key=options.key).json
    say(f"{made['name']}: {made['fingerprint']}")
    return 0


def delete_key(portal: Portal, options: argparse.Namespace) -> int:
    """Take a key away; what it has open is closed."""
    if not options.yes:
        raise Usage(f"Nothing was deleted. Say --yes to delete the key {options.name!r}.")
    wanted = [row for row in portal.items("ssh-keys") if options.name in {row["id"], row["name"], row["fingerprint"]}]
    if not wanted:
        raise Usage(f"You have no key {options.name!r}. List them: portalctl key list")
    if len(wanted) > 1:
        raise Usage(f"{options.name!r} stands for several; say the fingerprint. List them: portalctl key list")
    portal.call("DELETE", f"ssh-keys/{wanted[0]['id']}")
    say(f"{wanted[0]['name']}: deleted")
    return 0


def run(portal: Portal, options: argparse.Namespace) -> int:
    """Become `ssh`, led to the instance with its host keys pinned. Does not return when it succeeds."""
    program = shutil.which("ssh")
    if program is None:
        raise Usage("The program ssh is missing on this machine (package openssh-client).")
    way = portal.call("GET", f"instances/{find(portal, 'instances', options.name)['id']}/ssh").json
    folder = Path(tempfile.mkdtemp(prefix="portalctl-ssh-"))
    config = folder / "config"
    known = folder / "known_hosts"
    known.write_text(_lines(way["known_hosts"]), encoding="utf-8")
    # What the person has set up for all hosts (their keys, say) holds too, after this.
    own = FOLDER.expanduser() / "config"
    more = f"Match all\nInclude {own}\n" if own.is_file() else ""
    config.write_text(_pinned(way["config"], known) + more, encoding="utf-8")
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    return _become(program, [program, "-F", str(config), way["alias"], *words], folder)


def _become(program: str, command: Sequence[str], folder: Path) -> int:
    """Run it and remove what it was given; its exit status is ours."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(program, list(command), os.environ), 0)[1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def config(portal: Portal, options: argparse.Namespace) -> int:
    """Print what plain `ssh NAME` needs, or put it where `ssh` reads it."""
    ways = _ways(portal, options.names)
    text, known = _joined(ways), _lines(dict.fromkeys(line for way in ways for line in way["known_hosts"]))
    if not options.write:
        say(text + f"\n# In ~/.ssh/{KNOWN_HOSTS}:\n" + "".join(f"# {line}\n" for line in known.splitlines()))
        return 0
    folder = FOLDER.expanduser()
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(folder / KNOWN_HOSTS, known)
    _write(folder / CONFIG, text)
    if _include(folder / "config"):
        say(f"{folder / 'config'}: begins with “{INCLUDE}” now")
    for way in ways:
        say(f"ssh {way['alias']}")
    return 0


def _ways(portal: Portal, names: Sequence[str]) -> list[dict[str, Any]]:
    if names:
        rows = [find(portal, "instances", name) for name in names]
    else:
        rows = list(portal.items("instances", state="running"))
    found = []
    for row in rows:
        try:
            found.append(portal.call("GET", f"instances/{row['id']}/ssh").json)
        except Refused as refusal:
            if names or refusal.code not in {"not_owner", "no_ssh_yet"}:
                raise
    if not found:
        raise Usage("You have no instance that runs. Start one: portalctl instance start NAME --wait")
    return found


def _joined(ways: Sequence[dict[str, Any]]) -> str:
    """The entrance once, then each instance."""
    parts: dict[str, None] = {}
    for way in ways:
        gateway, _, own = way["config"].partition(f"Host {way['alias']}\n")
        parts[gateway] = None
        parts[f"Host {way['alias']}\n{own}"] = None
    return "".join(parts)


def _pinned(text: str, known: Path) -> str:
    return text.replace(f"~/.ssh/{KNOWN_HOSTS}", str(known))


def _lines(lines: Any) -> str:
    return "".join(f"{line}\n" for line in lines)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(path)


def _include(path: Path) -> bool:
    """Have the person's own file begin with ours; False when it does already. What is in it stays."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if INCLUDE in text.splitlines():
        return False
    _write(path, f"{INCLUDE}\n\n{text}")
    return True
