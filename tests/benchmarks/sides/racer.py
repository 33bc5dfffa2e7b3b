"""B1's exactly-once part: one of several schedulers that tick through the same minutes."""

from __future__ import annotations

import sys
from datetime import timedelta

import django

django.setup()

from apps.flows import scheduler  # noqa: E402 - Django has to be set up first
from mlportal.celery import app  # noqa: E402
from tests.benchmarks.work import START  # noqa: E402


def main(first: int, last: int) -> None:
    """Tick once for each minute; small batches, so that the racers meet."""
    app.set_default()
    print("ready", flush=True)
    sys.stdin.readline()
    for minute in range(first, last):
        scheduler.tick(START + timedelta(minutes=minute), batch=20)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
