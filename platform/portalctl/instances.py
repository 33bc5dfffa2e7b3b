"""What is done with an instance that exists: change, rename, clone, give away, show to somebody, read its log."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from portalctl import show
from portalctl.commands import Usage, find, mount, say, set_up, wait_for_instance
from portalctl.rest import Portal

DEFAULT = "default"


def change(portal: Portal, options: argparse.Namespace) -> int:
    """Change it; with ``--dry-run`` only say what that would mean."""
    found = find(portal, "instances", options.name)
    body = _changes(found, options)
    if not body:
        raise Usage("Nothing to change was said: see portalctl instance set --help")
    path = f"instances/{found['id']}"
    if options.dry_run:
        plan = portal.call("PATCH", f"{path}?dry_run=true", body).json
        say(show.as_json(plan) if options.json else _told(plan))
        return 0
    when = "restart" if options.restart else "next_start" if options.next_start else ""
    body |= {"revision": found["revision"], **({"when": when} if when else {})}
    changed = portal.call("PATCH", path, body).json
    if options.restart and options.wait:
        return wait_for_instance(portal, found["id"])
    say(show.state(changed))
    for line in changed["waiting"]:
        say(f"  at its next start: {_line(line)}")
    return 0


def _changes(found: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name in ("image", "size"):
        if getattr(options, name):
            body[name] = getattr(options, name)
    if options.volume or options.no_volumes:
        body["volumes"] = [mount(text) for text in options.volume]
    shm, options.shm = options.shm, None if options.shm == DEFAULT else options.shm
    said = set_up(options)
    if shm == DEFAULT:
        said["shm_bytes"] = None
    if options.env or options.unset_env:
        env = {**found["options"]["env"], **said.get("env", {})}
        said["env"] = {name: value for name, value in env.items() if name not in options.unset_env}
    return {**body, **said}


def _told(plan: dict[str, Any]) -> str:
    if not plan["changes"]:
        return "Nothing would change."
    lines = [_line(line) for line in plan["changes"]]
    lines += [f"ends: {text}" for text in plan["ends"]] + [f"stays: {text}" for text in plan["keeps"]]
    if plan["needs_start"]:
        lines.append("It runs: say --restart, or --next-start to leave it until then.")
    forecast = plan["forecast"]
    return "\n".join([*lines, f"{forecast['answer']}: {forecast['sentence']}", *filter(None, [forecast["change"]])])


def _line(line: dict[str, Any]) -> str:
    return f"{line['what']}: {line['before'] or '-'} -> {line['after'] or '-'}"


def rename(portal: Portal, options: argparse.Namespace) -> int:
    """Give it another name."""
    found = find(portal, "instances", options.name)
    say(show.state(portal.call("POST", f"instances/{found['id']}/rename", {"name": options.new_name}).json))
    return 0


def clone(portal: Portal, options: argparse.Namespace) -> int:
    """Make and start one like it."""
    found = find(portal, "instances", options.name)
    body = {"name": options.new_name or "", "queue": options.queue or ""}
    made = portal.call("POST", f"instances/{found['id']}/clone", body, key=options.key).json
    if options.wait:
        return wait_for_instance(portal, made["id"])
    say(show.state(made))
    return 0


def transfer(portal: Portal, options: argparse.Namespace) -> int:
    """Give it to a colleague; only with ``--yes``."""
    if not options.yes:
        raise Usage(f"Nothing was done. Say --yes to give {options.name!r} to {options.person!r}.")
    found = find(portal, "instances", options.name)
    body = {"to": options.person, "confirm": found["name"], "home": "goes" if options.with_home else "stays"}
    given = portal.call("POST", f"instances/{found['id']}/transfer", body).json
    say(f"{given['name']}: belongs to {given['owner']}")
    return 0


def share(portal: Portal, options: argparse.Namespace) -> int:
    """Let somebody look for some days, or end that."""
    found = find(portal, "instances", options.name)
    path = f"instances/{found['id']}/viewers"
    if options.end:
        portal.call("DELETE", f"{path}?person={quote(options.person)}")
        say(f"{found['name']}: {options.person} sees it no more")
        return 0
    until = (datetime.now(UTC) + timedelta(days=options.days)).isoformat()
    shown = portal.call("POST", path, {"person": options.person, "until": until}).json
    say(f"{found['name']}: {shown['person']} may look until {shown['until'][:16]} at {found['links']['page']}")
    return 0


def log(portal: Portal, options: argparse.Namespace) -> int:
    """The end of its log."""
    found = find(portal, "instances", options.name)
    answer = portal.call("GET", f"instances/{found['id']}/log")
    note = {name.lower(): value for name, value in answer.headers.items()}.get("log-note")
    if note:
        sys.stderr.write(unquote(note) + "\n")
    sys.stdout.buffer.write(answer.body)
    sys.stdout.flush()
    return 0
