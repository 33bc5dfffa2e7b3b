"""What opens an instance and what does not: key, one-time tickets, cookies."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

KEY = b"a-launch-key-of-enough-bits"
NOW = 1_800_000_000


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def ticket(key: bytes = KEY, **changes: Any) -> str:
    """A ticket written out by hand, so that a change of the format on one side alone fails here."""
    content = {"i": "abc", "u": "ann", "exp": NOW + 60, "n": "nonce-1", **changes}
    body = b64(json.dumps({k: v for k, v in content.items() if v is not None}).encode())
    return f"{body}.{b64(hmac.new(key, body.encode(), hashlib.sha256).digest())}"


class Clock:
    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    return path


@pytest.fixture
def door(tickets: ModuleType, key_file: Path, clock: Clock) -> Any:
    return tickets.Door(tickets.Key(key_file), "abc", clock)


def test_a_good_ticket_opens_once_and_tells_who(door: Any) -> None:
    assert door.enter(ticket()) == "ann"
    assert door.enter(ticket()) is None


def test_each_ticket_has_its_own_nonce(door: Any) -> None:
    assert door.enter(ticket()) == "ann"
    assert door.enter(ticket(n="nonce-2", u="bob")) == "bob"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        ".",
        "a.b",
        "a" * 10_000 + ".b",
        "ä.ö",
        ticket(key=b"another key"),
        ticket(i="other"),
        ticket(i=None),
        ticket(exp=NOW),
        ticket(exp=NOW - 1),
        ticket(exp=NOW + 3600),
        ticket(exp=True),
        ticket(exp="soon"),
        ticket(exp=None),
        ticket(u=""),
        ticket(u=None),
        ticket(u=7),
        ticket(n=""),
        ticket(n=None),
        ticket().replace(".", ".."),
        ticket()[:-2],
        ticket() + "A",
        f"{ticket().partition('.')[0]}.",
        b64(b"[1]") + "." + b64(hmac.new(KEY, b64(b"[1]").encode(), hashlib.sha256).digest()),
        b64(b"[" * 3000) + "." + b64(hmac.new(KEY, b64(b"[" * 3000).encode(), hashlib.sha256).digest()),
    ],
)
def test_a_bad_ticket_opens_nothing(door: Any, bad: str) -> None:
    assert door.enter(bad) is None


def test_a_used_nonce_is_remembered_until_the_ticket_is_dead_anyway(door: Any, clock: Clock) -> None:
    assert door.enter(ticket()) == "ann"
    clock.now += 59
    assert door.enter(ticket()) is None
    clock.now += 2
    assert door.enter(ticket()) is None


def test_a_ticket_of_the_previous_key_is_dead_as_soon_as_the_file_changes(door: Any, key_file: Path) -> None:
    fresh = key_file.with_name("new")
    fresh.write_bytes(b"rotated")
    fresh.rename(key_file)
    assert door.enter(ticket()) is None
    assert door.enter(ticket(key=b"rotated")) == "ann"


def test_a_cookie_names_its_user_until_it_expires_or_the_key_changes(
    door: Any, clock: Clock, key_file: Path, tickets: ModuleType
) -> None:
    cookie = door.cookie("ann")
    assert door.user_of_cookie(cookie) == "ann"
    clock.now += tickets.COOKIE_LIFE_S + 1
    assert door.user_of_cookie(cookie) is None
    clock.now = NOW
    key_file.write_bytes(b"rotated")
    assert door.user_of_cookie(cookie) is None


def test_a_ticket_is_no_cookie_and_a_cookie_no_ticket(door: Any) -> None:
    assert door.user_of_cookie(ticket(exp=NOW + 60)) is None
    assert door.enter(door.cookie("ann")) is None


def test_a_cookie_of_another_instance_opens_nothing(door: Any, tickets: ModuleType, key_file: Path) -> None:
    other = tickets.Door(tickets.Key(key_file), "other", Clock())
    assert door.user_of_cookie(other.cookie("ann")) is None


def test_without_a_key_nothing_opens(tickets: ModuleType, tmp_path: Path, clock: Clock) -> None:
    key = tickets.Key(tmp_path / "missing")
    door = tickets.Door(key, "abc", clock)
    assert not key.matches("")
    assert door.enter(ticket(key=b"")) is None
    (tmp_path / "missing").write_bytes(b" \n")
    assert not key.matches("")
    assert door.enter(ticket(key=b"")) is None


def test_the_key_matches_itself_alone(tickets: ModuleType, key_file: Path) -> None:
    key = tickets.Key(key_file)
    assert key.matches(KEY.decode())
    for wrong in ("", KEY.decode()[:-1], KEY.decode() + " ", "ключ", "\udcff"):
        assert not key.matches(wrong)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, "/lab"),
        ("", "/lab"),
        ("/lab/tree/a.ipynb", "/lab/tree/a.ipynb"),
        ("/proxy/8000/?a=b#c", "/proxy/8000/?a=b#c"),
        ("lab", "/lab"),
        ("//evil.test/", "/lab"),
        ("/\\evil.test", "/lab"),
        ("\\\\evil.test", "/lab"),
        ("https://evil.test", "/lab"),
        ("/a\r\nSet-Cookie: x", "/lab"),
        ("/a b", "/lab"),
        ("/\t/evil.test", "/lab"),
    ],
)
def test_only_paths_of_this_host_are_gone_on_to(tickets: ModuleType, wanted: str | None, expected: str) -> None:
    assert tickets.safe_next(wanted) == expected


def test_a_key_written_into_the_running_pod_counts_before_the_mounted_one(
    tickets: ModuleType, key_file: Path, tmp_path: Path, clock: Clock
) -> None:
    live = tmp_path / "live"
    live.mkdir()
    door = tickets.Door(tickets.Key(key_file, live), "abc", clock)
    cookie = door.cookie("ann")
    assert door.user_of_cookie(cookie) == "ann"
    (live / "key").write_bytes(b"rotated")
    assert door.user_of_cookie(cookie) is None
    assert door.enter(ticket()) is None
    assert door.enter(ticket(b"rotated")) == "ann"
    key_file.write_bytes(b"what the node brings up to date some time later")
    assert door.enter(ticket(b"rotated", n="nonce-2")) == "ann"


def test_a_pod_that_was_told_to_end_lets_nobody_in(
    tickets: ModuleType, key_file: Path, tmp_path: Path, clock: Clock
) -> None:
    key = tickets.Key(key_file, tmp_path)
    door = tickets.Door(key, "abc", clock)
    cookie = door.cookie("ann")
    key.close()
    assert not key.matches(KEY.decode())
    assert door.user_of_cookie(cookie) is None
    assert door.enter(ticket()) is None
    assert not tickets.Key(key_file, tmp_path).matches(KEY.decode()), "the other entrances read it from the folder"


def test_closing_needs_no_folder(tickets: ModuleType, key_file: Path, tmp_path: Path) -> None:
    key = tickets.Key(key_file, tmp_path / "absent")
    assert key.matches(KEY.decode())
    key.close()
    assert not key.matches(KEY.decode())
