"""``instance keep`` and ``instance end``: a moment, or a length of time from now."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

from portalctl.commands import Command, find, say
from portalctl.rest import Portal

_LENGTH = re.compile(r"\+?(?P<count>[0-9]{1,6})(?P<unit>min|h|d)")
_MINUTES = {"min": 1, "h": 60, "d": 24 * 60}
HOW = "8h, 3d, 90min from now, or a time such as 2026-05-01T18:00 (your machine's zone); none takes it back"


def moment(text: str) -> str | None:
    """What REST takes. Raises ``argparse.ArgumentTypeError``."""
    if text == "none":
        return None
    if length := _LENGTH.fullmatch(text):
        away = timedelta(minutes=int(length["count"]) * _MINUTES[length["unit"]])
        return (datetime.now(UTC) + away).isoformat(timespec="seconds")
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; say {HOW}") from error


def _set(verb: str, option: str, shown: str, words: str) -> Command:
    def run(portal: Portal, options: argparse.Namespace) -> int:
        found = find(portal, "instances", options.name)
        life = portal.call("POST", f"instances/{found['id']}/{verb}", {option: getattr(options, option)}).json
        say(f"{found['name']}: {words} {life[shown] or 'no time'}")
        return 0

    return run


keep = _set("keep", "until", "keep_until", "kept until")
end = _set("end", "at", "ends_at", "ends at")
