"""Open ports of an instance: list, open, close, and let somebody use one for a time."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from portalctl import show
from portalctl.commands import find, say
from portalctl.rest import Portal


def listed(portal: Portal, options: argparse.Namespace) -> int:
    """The open ports with their addresses, and who may use each."""
    rows = portal.call("GET", f"instances/{find(portal, 'instances', options.name)['id']}/ports").json
    _print(rows, as_json=options.json)
    return 0


def opened(portal: Portal, options: argparse.Namespace) -> int:
    """Open one, for its owner alone."""
    body = {"number": options.number, "label": options.label}
    rows = portal.call("POST", f"instances/{find(portal, 'instances', options.name)['id']}/ports", body).json
    say("\n".join(row["url"] for row in rows if row["number"] == options.number))
    return 0


def closed(portal: Portal, options: argparse.Namespace) -> int:
    """Close one; whoever is at it is cut off."""
    found = find(portal, "instances", options.name)
    portal.call("DELETE", f"instances/{found['id']}/ports?number={options.number}")
    say(f"{found['name']}: port {options.number} is closed")
    return 0


def shared(portal: Portal, options: argparse.Namespace) -> int:
    """Let somebody use one for some days, or end that."""
    found = find(portal, "instances", options.name)
    path = f"instances/{found['id']}/port-guests"
    if options.end:
        portal.call("DELETE", f"{path}?number={options.number}&person={quote(options.person)}")
        say(f"{found['name']}: port {options.number} is closed to {options.person}")
        return 0
    until = (datetime.now(UTC) + timedelta(days=options.days)).isoformat()
    body = {"number": options.number, "person": options.person, "until": until}
    guest = portal.call("POST", path, body).json
    say(f"{found['name']}: {guest['person']} may use port {options.number} until {guest['until'][:16]}")
    return 0


def _print(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        say(show.as_json(rows))
        return
    told = [{**row, "shared_with": [guest["person"] for guest in row["guests"]]} for row in rows]
    say(show.table(told, ("number", "label", "url", "shared_with")))
