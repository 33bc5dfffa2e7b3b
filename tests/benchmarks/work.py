"""The work of B1, the same for every side. No imports beyond the standard library: peers have their own packages."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

#: Whole hours from UTC, so that a minute is the same minute everywhere.
ZONES = ("UTC", "Europe/Berlin", "Asia/Shanghai", "America/New_York", "Asia/Tokyo")
#: All of them mean every hour; written differently, with 60 minutes they make 1,020 distinct expressions.
HOURS = (
    "*", "0-23", "*/1", "0-23/1", "0,1-23", "0-1,2-23", "0-2,3-23", "0-3,4-23", "0-4,5-23", "0-5,6-23", "0-6,7-23",
    "0-7,8-23", "0-8,9-23", "0-9,10-23", "0-10,11-23", "0-11,12-23", "0-12,13-23",
)  # fmt: skip
START = datetime(2031, 5, 5, 12, 0, tzinfo=timezone.utc)  # noqa: UP017 - peers may be older


def schedule(number: int) -> tuple[str, str]:
    """Expression and zone of a flow: one in sixty is due in any minute."""
    return f"{number % 60} {HOURS[number // 60 % len(HOURS)]} * * *", ZONES[number % len(ZONES)]


def due_in(minute: int, flows: int) -> int:
    """How many flows are due in a minute of the hour."""
    return sum(1 for number in range(flows) if number % 60 == minute % 60)


def serve(
    setup: Callable[[int], None],
    one_round: Callable[[datetime], dict[str, Any]],
    versions: str,
    all_due: Callable[[datetime], None] = lambda moment: None,
) -> None:
    """Obey the lines on standard input and answer with JSON.

    A round is the number of the minute after ``START``; before ``all NUMBER`` every flow is made due then.
    """
    flows = int(os.environ["BENCH_FLOWS"])
    setup(flows)
    print(json.dumps({"ready": True, "versions": versions}), flush=True)
    for line in sys.stdin:
        if not line.strip():
            return
        moment = START + timedelta(minutes=int(line.split()[-1]))
        if line.startswith("all "):
            all_due(moment)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        counts = one_round(moment)
        wall_ms = (time.perf_counter() - began) * 1000
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu_ms = (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000
        print(json.dumps({"wall_ms": counts.pop("wall_ms", wall_ms), "cpu_ms": cpu_ms, **counts}), flush=True)
