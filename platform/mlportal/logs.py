"""Log lines for people: UTC, one line per event, a traceback folded into its last frame unless asked for."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO


class LineFormatter(logging.Formatter):
    """`2030-01-02T03:04:05Z WARNING name: text`. Line breaks inside a message become ` | `."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%SZ"
    default_msec_format = None

    def format(self, record: logging.LogRecord) -> str:
        """One record, one line."""
        return " | ".join(part.rstrip() for part in super().format(record).splitlines() if part.strip())


class StandardError(logging.StreamHandler[TextIO]):
    """Writes to what sys.stderr is now: a forked program has another one than the process that set up the logging."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """The stream of this process."""
        return sys.stderr
