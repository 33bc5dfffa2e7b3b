"""Live updates are sent from one loop that lasts; what is announced meanwhile goes together."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from apps.core import live

PATIENCE_S = 90.0


class Layer:
    """Keeps what is sent, in which loop; the first message is held until the test lets it go."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[live.Row]]] = []
        self.loops: set[asyncio.AbstractEventLoop] = set()
        self.began, self.go = threading.Event(), threading.Event()
        self.arrived = threading.Semaphore(0)
        self.broken = False

    async def group_send(self, name: str, message: dict[str, Any]) -> None:
        self.loops.add(asyncio.get_running_loop())
        self.began.set()
        await asyncio.to_thread(self.go.wait, PATIENCE_S)
        self.sent.append((name, message["rows"]))
        self.arrived.release()
        if self.broken:
            raise OSError("no Redis")

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.arrived.acquire(timeout=PATIENCE_S)


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Layer:
    found = Layer()
    monkeypatch.setattr(live, "get_channel_layer", lambda: found)
    return found


def test_rows_that_change_while_a_message_is_on_its_way_go_in_the_next_one_each_once(layer: Layer) -> None:
    sender = live.Sender()
    sender.post({"live.a": [("instance", "1")]})
    assert layer.began.wait(PATIENCE_S)
    for _ in range(3):
        sender.post({"live.a": [("instance", "1"), ("instance", "2")], "live.b": [("queue", "3")]})
    layer.go.set()
    layer.wait(3)
    assert layer.sent == [
        ("live.a", [("instance", "1")]),
        ("live.a", [("instance", "1"), ("instance", "2")]),
        ("live.b", [("queue", "3")]),
    ]
    sender.post({"live.a": [("instance", "4")]})
    layer.wait(1)
    assert layer.sent[-1] == ("live.a", [("instance", "4")])
    assert len(layer.loops) == 1


def test_a_message_that_cannot_be_sent_does_not_keep_the_next_one(layer: Layer) -> None:
    layer.go.set()
    layer.broken = True
    sender = live.Sender()
    sender.post({"live.a": [("instance", "1")]})
    layer.wait(1)
    layer.broken = False
    sender.post({"live.a": [("instance", "2")]})
    layer.wait(1)
    assert layer.sent[-1] == ("live.a", [("instance", "2")])
