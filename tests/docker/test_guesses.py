"""Guessing a key: a hundred thousand tries find nothing, and what they cost is bounded (F40)."""

from __future__ import annotations

import secrets
from pathlib import Path
from types import ModuleType

import pytest

GUESSES = 100_000


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_hundred_thousand_guesses_find_nothing_and_few_are_answered_in_full(
    guesses: ModuleType, tickets: ModuleType, tmp_path: Path, clock: Clock
) -> None:
    key = secrets.token_urlsafe(32)
    (tmp_path / "key").write_text(key)
    known, counted, answered = tickets.Key(tmp_path / "key", tmp_path / "live"), guesses.Guesses(clock), 0
    for number in range(GUESSES):
        clock.now += 0.001
        assert not known.matches(f"{key[:-6]}{number:06}")
        answered += counted.wrong("203.0.113.7") == 0
    assert answered <= guesses.FREE + GUESSES * 0.001 * guesses.PER_S + 1
    assert known.matches(key), "the owner is never locked out"


def test_the_wait_that_is_told_is_the_one_that_helps(guesses: ModuleType, clock: Clock) -> None:
    counted = guesses.Guesses(clock)
    waits = [counted.wrong("a") for _ in range(guesses.FREE + 1)]
    assert waits[:-1] == [0] * guesses.FREE
    assert waits[-1] == pytest.approx(1 / guesses.PER_S)
    clock.now += waits[-1]
    assert counted.wrong("a") == 0
    assert counted.wrong("a") > 0


def test_each_address_has_tries_of_its_own(guesses: ModuleType, clock: Clock) -> None:
    counted = guesses.Guesses(clock)
    while not counted.wrong("a"):
        pass
    assert counted.wrong("b") == 0


def test_made_up_addresses_do_not_use_up_memory(guesses: ModuleType, clock: Clock) -> None:
    counted = guesses.Guesses(clock)
    for number in range(guesses.MOST + 500):
        counted.wrong(f"address {number}")
    assert len(counted._left) == guesses.MOST
