"""Images of the catalogue, and which teams bring their own; for platform administrators."""

from __future__ import annotations

import argparse
from typing import Any

from portalctl.commands import Usage, find, say
from portalctl.rest import Portal

_TEXTS = ("reference", "purpose", "description", "version", "cuda", "architecture")


def arguments(made: argparse.ArgumentParser) -> None:
    """What can be said of an image."""
    for name in _TEXTS:
        made.add_argument(f"--{name}")
    made.add_argument("--bare", action="store_true", help="not made for the portal: its tools are put in at each start")
    made.add_argument("--hidden", action="store_true", help="offered to the teams of --team alone")
    made.add_argument("--team", action="append", default=None, metavar="TEAM", help="sees it although it is hidden")


def add(portal: Portal, options: argparse.Namespace) -> int:
    """Put an image into the catalogue."""
    body = {"name": options.name, "purpose": "dev", **_facts(options)}
    if "reference" not in body:
        raise Usage("Say which image it is: --reference registry/team/name:tag")
    made = portal.call("POST", "images", body, key=options.key).json
    say(f"{made['name']}: {made['reference']}")
    return 0


def change(portal: Portal, options: argparse.Namespace) -> int:
    """Change what is said of an image."""
    body = _facts(options)
    if not body:
        raise Usage("Say what is to change, for example --version 2.5. All options: portalctl image change --help")
    found = find(portal, "images", options.name)
    made = portal.call("PATCH", f"images/{found['id']}", body).json
    say(f"{made['name']}: {made['reference']}")
    return 0


def retire(portal: Portal, options: argparse.Namespace) -> int:
    """Nothing new starts from it; ``--use`` names the one to use instead."""
    found = find(portal, "images", options.name)
    body: dict[str, Any] = {"retired": True, **({"replaced_by": options.use} if options.use else {})}
    made = portal.call("PATCH", f"images/{found['id']}", body).json
    instead = made["replaced_by"]
    say(f"{made['name']}: retired" + (f", use {instead}" if instead else ""))
    return 0


def own_images(portal: Portal, options: argparse.Namespace) -> int:
    """Whether members of a team may use images that are not in the catalogue, and from where."""
    found = find(portal, "teams", options.name)
    body: dict[str, Any] = {"own_images": not options.forbid}
    if options.source is not None:
        body["image_prefixes"] = options.source
    made = portal.call("POST", f"teams/{found['id']}/own-images", body).json
    places = ", ".join(made["image_prefixes"]) or "any registry"
    say(f"{made['name']}: " + (f"own images from {places}" if made["own_images"] else "images of the catalogue alone"))
    return 0


def _facts(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(options, name) for name in _TEXTS if getattr(options, name) is not None}
    if options.bare:
        found["prepared"] = False
    if options.hidden:
        found["hidden"] = True
    if options.team is not None:
        found["teams"] = options.team
    return found
