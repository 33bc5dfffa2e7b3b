"""Log lines for people: UTC, one line per event, a traceback folded into its last frame unless asked for."""

from __future__ import annotations

import logging
import time


class LineFormatter(logging.Formatter):
    """`2030-01-02T03:04:05Z WARNING name: text`. Line breaks inside a message become ` | `."""

    converter = staticmethod(time.gmtime)  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%SZ"
    default_msec_format = None

    def format(self, record: logging.LogRecord) -> str:
        """One record, one line."""
        return " | ".join(part.rstrip() for part in super().format(record).splitlines() if part.strip())
