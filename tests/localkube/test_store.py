"""The store by itself: what callers may rely on, and what happens when the disk or the file is bad."""

import sqlite3

import pytest

from localkube.status import ApiError
from localkube.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store.db", history=10)
    store.create("namespaces", {"metadata": {"name": "default"}})
    yield store
    store.close()


def config(name="c", **data):
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def test_what_get_and_create_return_is_the_callers_own(store):
    made = store.create("configmaps", config(a="1"))
    made["data"]["a"] = "changed"
    got = store.get("configmaps", "default", "c")
    assert got["data"] == {"a": "1"}
    got["data"]["a"] = "changed"
    assert store.peek("configmaps", "default", "c")["data"] == {"a": "1"}


def test_listeners_hear_every_commit_in_order_even_those_of_listeners(store):
    heard = []

    def first(event, obj):
        heard.append(("first", event, obj["data"]["a"]))
        if event == "ADDED":
            store.update("configmaps", obj | {"data": {"a": "2"}})

    store.subscribe("configmaps", first)
    stop = store.subscribe("configmaps", lambda event, obj: heard.append(("second", event, obj["data"]["a"])))
    store.create("configmaps", config(a="1"))
    assert heard == [
        ("first", "ADDED", "1"),
        ("second", "ADDED", "1"),
        ("first", "MODIFIED", "2"),
        ("second", "MODIFIED", "2"),
    ]
    stop()
    store.delete("configmaps", "default", "c")
    assert heard[-1] == ("first", "DELETED", "2")


def test_a_listener_that_fails_harms_nobody(store, caplog):
    heard = []
    store.subscribe("configmaps", lambda event, obj: 1 / 0)
    store.subscribe("configmaps", lambda event, obj: heard.append(event))
    store.create("configmaps", config())
    assert heard == ["ADDED"]
    assert "ZeroDivisionError" in caplog.text


def test_a_watch_has_no_gap_and_ends_when_its_reader_is_too_slow(store, monkeypatch):
    monkeypatch.setattr("localkube.changes._WATCH_BACKLOG", 3)
    version = store.version
    store.create("configmaps", config("a"))
    watch = store.watch_since("configmaps", version)
    store.create("configmaps", config("b"))
    assert [event.obj["metadata"]["name"] for event in watch.events] == ["a", "b"]
    for name in "cde":
        store.create("configmaps", config(name))
    assert watch.overflowed
    store.unwatch(watch)


def test_a_version_before_the_history_is_gone(store):
    version = store.version
    for number in range(12):
        store.create("configmaps", config(f"c{number}"))
    with pytest.raises(ApiError, match="too old resource version") as caught:
        store.watch_since("configmaps", version)
    assert caught.value.code == 410


def test_a_full_disk_refuses_the_write_and_leaves_everything_as_it_was(store):
    store.create("configmaps", config(a="1"))
    version = store.version
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(ApiError, match="the store cannot write: database or disk is full") as caught:
        store.create("configmaps", config("big", a="x" * 1_000_000))
    assert caught.value.code == 500
    assert (store.version, store.peek("configmaps", "default", "big")) == (version, None)
    store._db.execute("PRAGMA max_page_count=1000000")
    assert store.create("configmaps", config("big", a="x" * 1_000_000))["metadata"]["resourceVersion"] == str(
        version + 1
    )


def test_a_file_of_another_format_is_refused_in_words(tmp_path):
    with sqlite3.connect(tmp_path / "store.db") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(ApiError, match="has format 99, and this localkube reads 1: use the version that wrote it"):
        Store(tmp_path / "store.db")


def test_a_file_that_is_no_database_is_refused_in_words(tmp_path):
    (tmp_path / "store.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ApiError, match="cannot open the store"):
        Store(tmp_path / "store.db")


def test_names_that_lone_surrogates_spoil_do_not_stop_the_store(store):
    store.create("configmaps", config(a="\ud800"))
    assert store.create("configmaps", config("d"))["metadata"]["name"] == "d"
