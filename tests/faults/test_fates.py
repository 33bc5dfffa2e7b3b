"""Random lives, each drawn from its number: ``pytest tests/faults/test_fates.py -k 'seed-117'`` plays one
again. ``MLPORTAL_FATES=200`` plays as many."""

from __future__ import annotations

import copy
import os
import sys
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import access, watching
from apps.core import crashpoints, outbox, reconciling
from apps.flows import scheduler, services
from tests.faults.fate import Clock, Fate
from tests.tenants import make

FATES = int(os.environ.get("MLPORTAL_FATES", "200"))
GIB = 1 << 30


def flow(queue: str, name: str, *, retries: int, schedules: list[dict[str, str]]) -> dict[str, Any]:
    """A flow's document."""
    return {
        "name": name,
        "queue": queue,
        "schedules": schedules,
        "nodes": [
            {
                "name": "main",
                "executor": "container",
                "image": "python",
                "size": "small",
                "command": ["python", "-c", "print(42)"],
                "retries": {"count": retries, "interval_s": 0},
                "timeout_s": 600,
            }
        ],
        "alerts": [],
    }


@pytest.fixture
def fate(
    request: pytest.FixtureRequest,
    db: None,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> Fate:
    """A queue with room for four programs or instances at once, two flows, and a clock of its own."""
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock)
    Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
    Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
    Size.objects.create(name="small", cpu_millis=1000, memory_bytes=GIB)
    queue = make.queue(cpu_millis=4000)
    actor = make.actor(make.user(role_in=queue.team))
    every = [{"cron": "*/20 * * * *", "timezone": "Asia/Shanghai", "misfire": "all"}]
    documents = [
        flow(queue.name, "by-hand", retries=1, schedules=[]),
        flow(queue.name, "by-clock", retries=0, schedules=copy.deepcopy(every)),
    ]
    flows = [services.create_flow(actor=actor, document=document) for document in documents]
    found = Fate(
        seed=request.param,
        actor=actor,
        flows=flows,
        queue=queue,
        clock=clock,
        committed=lambda: django_capture_on_commit_callbacks(execute=True),
    )
    monkeypatch.setattr(access, "connect", lambda _cluster: found.kube)
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: found.hints.append((kind, pk)))
    for module in (reconciling, watching):
        monkeypatch.setattr(module.log, "exception", lambda *_: found.note_trouble(sys.exc_info()[1]))
    monkeypatch.setattr(outbox, "send_hint", lambda _pk: None)
    monkeypatch.setattr(scheduler, "hint_queued", lambda: None)
    monkeypatch.setattr(crashpoints, "reach", found.reach)
    return found


@pytest.mark.parametrize("fate", range(FATES), indirect=True, ids=lambda seed: f"seed-{seed}")
def test_whatever_happens_nothing_is_lost_doubled_or_left_behind(fate: Fate) -> None:
    try:
        with connection.execute_wrapper(fate.note_statement):
            fate.live()
            fate.end()
    except AssertionError as error:
        raise AssertionError(f"seed {fate.seed}: {error}\n" + "\n".join(fate.told[-30:])) from error
