"""The lines that a person reads while the portal runs: one for each event, a sign, who, what."""

from __future__ import annotations

import sys
import time

DONE, NOTE, AGAIN, WRONG, STOPPED = "✓", "·", "↻", "✗", "■"
_ASCII = {DONE: "+", NOTE: "-", AGAIN: "~", WRONG: "!", STOPPED: "#"}


def event(sign: str, who: str, what: str) -> None:
    """Print one line with the time of day. A terminal that is gone is no reason to fail."""
    line(f"{time.strftime('%H:%M:%S')} {sign} {who:<10} {what}")


def line(text: str) -> None:
    """Print a line as it is, in ASCII signs where the terminal knows no others."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        for sign, plain in _ASCII.items():
            text = text.replace(sign, plain)
        text = text.encode(encoding, errors="replace").decode(encoding)
    try:
        print(text, flush=True)
    except OSError:
        return
