"""The watcher: what reaches whose handler, when a cluster counts as unreachable, and that nothing stops the watch."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest
from django.db import OperationalError

from apps.clusters import capacity, contact, watcher, watching
from apps.clusters.watcher import Watcher
from apps.core import wake
from kubekit import names
from kubekit.credentials import Credentials
from kubekit.errors import Unauthorized, Unreachable

CREDENTIALS = Credentials(server="http://127.0.0.1:1", token="t")
PK = uuid.uuid4()


@pytest.fixture
def registry(monkeypatch) -> watching.Registry:
    made = watching.Registry()
    monkeypatch.setattr(watching, "registry", made)
    return made


@pytest.fixture
def contacts(monkeypatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(contact, "note_connected", lambda pk: told.append("connected"))
    monkeypatch.setattr(contact, "note_answer", lambda pk: told.append("answer"))
    monkeypatch.setattr(contact, "note_failure", lambda pk, error: told.append(error.code))
    return told


@pytest.fixture
async def watch(registry, contacts, monkeypatch):
    monkeypatch.setattr(watcher, "install_id", lambda: "me")
    monkeypatch.setattr(watcher, "close_old_connections", lambda: None)
    async with Watcher(PK, CREDENTIALS) as made:
        yield made


def obj(name: str, kind: str = "instance", *, install: str = "me", namespace: str = "mlp-q") -> dict[str, Any]:
    labels = {names.INSTALL: install, names.KIND: kind, names.ID: name}
    return {"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels}, "spec": {}}


def event(about: str, kind: str = "Pod", namespace: str = "mlp-q") -> dict[str, Any]:
    return {"reason": "Pulling", "involvedObject": {"kind": kind, "namespace": namespace, "name": about}}


async def told(watch: Watcher, resource: str, change: str, raw: dict[str, Any]) -> None:
    """One message of a watch, handed over."""
    await watch._changed(resource, change, raw)
    await watch.settle()


async def test_only_our_objects_of_the_label_reach_the_handler_in_order(watch: Watcher) -> None:
    heard: list[tuple[str, str]] = []
    watching.on_object("pods", "instance", lambda pk, kind, raw: heard.append((kind, raw["metadata"]["name"])))
    await told(watch, "pods", "ADDED", obj("a"))
    await told(watch, "pods", "ADDED", obj("b", "attempt"))
    await told(watch, "pods", "ADDED", obj("c", install="another portal"))
    await told(watch, "pods", "ADDED", {"metadata": {"name": "d", "uid": "d"}})
    await told(watch, "pods", "DELETED", obj("a"))
    assert heard == [("ADDED", "a"), ("DELETED", "a")]


async def test_each_complete_list_gives_the_resync_handler_all_of_its_kind(watch: Watcher, contacts) -> None:
    lists: list[list[str]] = []
    watching.on_resync("pods", "instance", lambda pk, items: lists.append([o["metadata"]["name"] for o in items]))
    await watch._synced("pods", [obj("a"), obj("b", "attempt"), obj("c"), obj("d", install="x")])
    await watch._synced("pods", [])
    assert lists == [["a", "c"], []]
    assert contacts == ["connected"]


async def test_a_handlers_fault_is_logged_and_the_next_event_still_arrives(watch: Watcher, caplog) -> None:
    heard: list[str] = []

    def handler(pk: uuid.UUID, kind: str, raw: dict[str, Any]) -> None:
        heard.append(kind)
        raise RuntimeError("a fault")

    watching.on_object("pods", "instance", handler)
    await told(watch, "pods", "ADDED", obj("a"))
    await told(watch, "pods", "MODIFIED", obj("a"))
    assert heard == ["ADDED", "MODIFIED"]
    assert "a fault" in caplog.text


async def test_what_comes_together_is_handed_over_together_and_in_order(watch: Watcher) -> None:
    heard: list[list[tuple[str, str]]] = []
    told_of: list[list[str]] = []
    watching.on_objects(
        "pods", "instance", lambda pk, changes: heard.append([(kind, raw["metadata"]["name"]) for kind, raw in changes])
    )
    watching.on_events(lambda pk, told: told_of.append([raw["involvedObject"]["name"] for raw, _labels in told]))
    await watch._changed("pods", "ADDED", obj("a"))
    await watch._changed("events", "ADDED", event("a"))
    await watch._changed("pods", "MODIFIED", obj("b"))
    await watch._changed("events", "ADDED", event("b"))
    await watch._changed("pods", "DELETED", obj("a"))
    assert heard == []
    await watch.settle()
    assert heard == [[("ADDED", "a"), ("MODIFIED", "b"), ("DELETED", "a")]]
    assert told_of == [["a", "b"]]


async def test_a_list_comes_after_what_the_watch_said_before_it(watch: Watcher) -> None:
    heard: list[str] = []
    watching.on_object("pods", "instance", lambda pk, kind, raw: heard.append(raw["metadata"]["name"]))
    watching.on_resync("pods", "instance", lambda pk, items: heard.append(f"list of {len(items)}"))
    await watch._changed("pods", "ADDED", obj("a"))
    await watch._synced("pods", [obj("a"), obj("b")])
    assert heard == ["a", "list of 2"]


async def test_the_watches_wait_when_what_they_said_piles_up(watch: Watcher, monkeypatch) -> None:
    heard: list[str] = []
    watching.on_object("pods", "instance", lambda pk, kind, raw: heard.append(raw["metadata"]["name"]))
    monkeypatch.setattr(watcher, "MOST_WAITING", 3)
    for name in "abcd":
        await watch._changed("pods", "ADDED", obj(name))
    assert heard == ["a", "b", "c"]


async def test_while_the_database_is_away_what_was_said_is_kept_and_told_again(
    watch: Watcher, monkeypatch, caplog
) -> None:
    heard: list[int] = []
    monkeypatch.setattr(watcher, "DATABASE_AWAY_S", (0.0, 0.0, 0.0))

    def handler(pk: uuid.UUID, changes: Any) -> None:
        heard.append(len(changes))
        if len(heard) < 3:
            raise OperationalError("the database system is starting up")

    watching.on_objects("pods", "instance", handler)
    await told(watch, "pods", "ADDED", obj("a"))
    assert heard == [1, 1, 1]
    assert "what a cluster said waits" in caplog.text
    monkeypatch.setattr(watcher, "DATABASE_AWAY_S", ())
    heard.clear()
    await told(watch, "pods", "ADDED", obj("b"))
    assert heard == [1]
    assert "is given up" in caplog.text


async def test_events_carry_the_labels_of_what_they_are_about(watch: Watcher) -> None:
    heard: list[tuple[str, str]] = []
    watching.on_event(lambda pk, raw, labels: heard.append((raw["involvedObject"]["name"], labels[names.KIND])))
    await watch._synced("pods", [obj("a")])
    await told(watch, "events", "ADDED", event("a"))
    await told(watch, "events", "DELETED", event("a"))
    await told(watch, "events", "ADDED", event("foreign", namespace="default"))
    assert heard == [("a", "instance")]


async def test_an_event_that_comes_before_its_object_waits_for_it_and_not_for_ever(watch: Watcher, monkeypatch) -> None:
    heard: list[str] = []
    watching.on_event(lambda pk, raw, labels: heard.append(raw["involvedObject"]["name"]))
    await told(watch, "events", "ADDED", event("early"))
    await told(watch, "events", "ADDED", event("late"))
    assert heard == []
    await told(watch, "pods", "ADDED", obj("early"))
    assert heard == ["early"]
    monkeypatch.setattr(watcher, "EVENT_WAITS_S", -1.0)
    await told(watch, "pods", "ADDED", obj("late"))
    assert heard == ["early"]


async def test_the_last_events_of_a_deleted_object_still_arrive(watch: Watcher) -> None:
    heard: list[str] = []
    watching.on_event(lambda pk, raw, labels: heard.append(raw["reason"]))
    await told(watch, "pods", "ADDED", obj("a"))
    await told(watch, "pods", "DELETED", obj("a"))
    await told(watch, "events", "ADDED", event("a"))
    assert heard == ["Pulling"]


async def test_one_broken_line_is_not_unreachable_but_silence_is(watch: Watcher, contacts) -> None:
    pods = watch._watch("pods")
    pods.last_contact = time.monotonic()
    await watch._synced("pods", [])
    pods.last_contact = time.monotonic() - watcher.UNREACHABLE_AFTER_S - 1  # a quiet cluster
    await watch._failed(Unreachable("reset"), "pods")
    await watch._failed(Unreachable("reset"), "nodes")
    await watch._synced("nodes", [])
    await watch._failed(Unreachable("reset"), "nodes")
    assert contacts == ["connected"]
    await watch._failed(Unreachable("refused"), "pods")
    await watch._synced("pods", [])
    assert contacts == ["connected", "unreachable", "connected"]


async def test_refused_credentials_are_told_at_once(watch: Watcher, contacts) -> None:
    watch._watch("pods").last_contact = time.monotonic()
    await watch._failed(Unauthorized("no"), "pods")
    assert contacts == ["unauthorized"]


async def test_pods_of_others_count_for_room_and_heartbeats_write_nothing(watch: Watcher, monkeypatch) -> None:
    stored: list[dict[str, Any]] = []
    monkeypatch.setattr(watcher, "FLUSH_AFTER_S", 0.01)

    def store(pk: uuid.UUID, changes: capacity.Changes) -> capacity.Stored:
        stored.append(dict(changes.rows))
        return capacity.Stored(written=1, gone=())

    monkeypatch.setattr(watcher.capacity, "store", store)
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
    foreign = {"metadata": {"uid": "f", "name": "f"}, "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}}  # fmt: skip  # noqa: E501
    flush = asyncio.create_task(watch._flush())
    await watch._synced("nodes", [node])
    await asyncio.sleep(0.05)
    assert stored == []  # half of the picture would show the node as empty
    await watch._synced("pods", [foreign])
    await asyncio.sleep(0.1)
    await told(watch, "nodes", "MODIFIED", node)
    await asyncio.sleep(0.05)
    flush.cancel()
    assert [rows["n"]["requested"] for rows in stored] == [{"cpu_millis": 1000, "pods": 1}]


async def test_clusters_are_picked_up_changed_and_dropped_when_woken(monkeypatch) -> None:
    one, two = uuid.uuid4(), uuid.uuid4()
    other = Credentials(server="http://127.0.0.1:2", token="t")
    wanted: dict[uuid.UUID, tuple[str, Credentials]] = {one: ("1", CREDENTIALS)}
    log: list[tuple[str, uuid.UUID, str]] = []

    async def keep(pk: uuid.UUID, credentials: Credentials) -> None:
        log.append(("start", pk, credentials.server))
        try:
            await asyncio.Event().wait()
        finally:
            log.append(("end", pk, credentials.server))

    monkeypatch.setattr(watcher, "_clusters", lambda: dict(wanted))
    monkeypatch.setattr(watcher, "_keep_watching", keep)
    monkeypatch.setattr(wake, "alarms", wake.Alarms())
    stop = asyncio.Event()
    loop = asyncio.create_task(watcher.run(stop))

    async def ring() -> None:
        wake.alarms._events[wake.CLUSTERS].set()
        await asyncio.sleep(0.1)

    await asyncio.sleep(0.1)
    wanted[two] = ("1", CREDENTIALS)
    await ring()
    wanted[one] = ("2", other)
    await ring()
    del wanted[two]
    await ring()
    stop.set()
    await asyncio.wait_for(loop, 5)
    a, b = CREDENTIALS.server, other.server
    assert log == [
        ("start", one, a), ("start", two, a), ("end", one, a), ("start", one, b), ("end", two, a), ("end", one, b)
    ]  # fmt: skip
