"""The sweep: what is due is hinted, and it sleeps only when nothing due is left."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.utils import timezone

from apps.core import claims, outbox, reconciling
from apps.core.models import OutboxMessage
from apps.storage.models import Volume


def messages(count: int, *, in_s: float = -1) -> None:
    due = timezone.now() + timedelta(seconds=in_s)
    for number in range(count):
        OutboxMessage.objects.create(topic="t", key=f"{in_s} {number}", payload={}, due_at=due)


def test_behind_a_full_batch_of_messages_the_sweep_comes_back_at_once(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinted: list[object] = []
    monkeypatch.setattr(reconciling, "_swept", {outbox.SWEPT.kind: replace(outbox.SWEPT, hint=hinted.append)})
    messages(3)
    messages(1, in_s=50)
    back = reconciling.sweep(limit=2)
    assert len(hinted) == 2
    assert back is not None
    assert back <= timezone.now() + timedelta(seconds=1)
    rest = reconciling.sweep(limit=10)
    assert rest is not None
    assert rest > timezone.now() + timedelta(seconds=40)


def test_behind_a_full_batch_of_rows_the_sweep_comes_back_at_once(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinted: list[object] = []
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: hinted.append(pk))
    Volume.objects.as_system().update(due_at=timezone.now() - timedelta(seconds=1))
    back = reconciling.sweep(limit=1)
    assert hinted == [volume.pk]
    assert back is not None
    assert back <= timezone.now() + timedelta(seconds=1)
    assert reconciling.sweep(limit=10) is None


def test_rows_and_messages_are_looked_for_in_one_statement_and_neither_waits_behind_the_other(
    volume: Volume, hints: list[Any], django_assert_num_queries: Any
) -> None:
    messages(3)
    Volume.objects.as_system().update(due_at=timezone.now())
    with django_assert_num_queries(1):
        reconciling.sweep(limit=2)
    assert sorted(hint.task for hint in hints) == ["core.deliver", "core.deliver", "core.reconcile"]


def test_a_row_that_waits_for_a_worker_is_hinted_again_after_a_while_and_not_at_each_wake(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinted: list[object] = []
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: hinted.append(pk))
    now = timezone.now()
    Volume.objects.as_system().update(due_at=now)
    told = reconciling.Told()
    for seconds in (0, 1, 4):
        monkeypatch.setattr(timezone, "now", lambda seconds=seconds: now + timedelta(seconds=seconds))
        back = reconciling.sweep(told)
    assert hinted == [volume.pk]
    assert back == now + reconciling.TELL_AGAIN, "the hint may be lost"
    monkeypatch.setattr(timezone, "now", lambda: now + reconciling.TELL_AGAIN)
    reconciling.sweep(told)
    assert hinted == [volume.pk] * 2
    monkeypatch.setattr(timezone, "now", lambda: now + reconciling.TELL_AGAIN * 2)
    assert reconciling.sweep(told) == now + reconciling.TELL_AGAIN * 3, "each time after twice as long"
    assert hinted == [volume.pk] * 2
    Volume.objects.as_system().update(due_at=now + timedelta(seconds=1))
    reconciling.sweep(told)
    assert hinted == [volume.pk] * 3, "due for another reason"
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(seconds=2))
    reconciling.sweep(told)
    assert hinted == [volume.pk] * 4, "a clock that went back"


@pytest.mark.parametrize(
    ("columns", "followed"),
    [
        ({"due_at": None}, False),
        ({"due_at": timedelta(minutes=1)}, False),
        ({"due_at": timedelta(), "claimed_until": timedelta(minutes=1)}, False),
        ({"due_at": timedelta()}, True),
        ({"due_at": timedelta(), "claimed_until": timedelta(minutes=-1)}, True),
    ],
)
def test_a_hint_of_the_sweep_is_followed_only_if_the_row_is_still_due_and_free(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, columns: dict[str, timedelta | None], followed: bool
) -> None:
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, args, **_: sent.append((name, args)))
    now = timezone.now()
    Volume.objects.as_system().update(due_at=now)
    reconciling.sweep()
    assert sent == [("core.reconcile", ("volume", str(volume.pk), True))]
    found = {name: None if value is None else now + value for name, value in columns.items()}
    before = Volume.objects.as_system().get().pokes
    Volume.objects.as_system().update(**found)
    claim = claims.take(Volume, volume.pk, only_due=True)
    assert (claim is not None) is followed
    assert Volume.objects.as_system().get().pokes == before
