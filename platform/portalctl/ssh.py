"""SSH: one's public keys, and the way to an instance with the `ssh` of this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from portalctl.commands import Usage, say
from portalctl.rest import Portal


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
