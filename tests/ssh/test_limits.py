"""Allowances of the entrance: by a clock that the test holds."""

from __future__ import annotations

from apps.instances.sshgate import limits
from apps.instances.sshgate.limits import Counts, Wrong


def test_guesses_are_stopped_and_the_address_may_try_again_after_a_while() -> None:
    wrong = Wrong(at_once=3, a_second=0.5)
    for _ in range(3):
        assert not wrong.too_many("192.0.2.1", 100.0)
        wrong.note("192.0.2.1", 100.0)
    assert wrong.too_many("192.0.2.1", 100.0)
    assert not wrong.too_many("192.0.2.2", 100.0)
    assert wrong.too_many("192.0.2.1", 101.0)
    assert not wrong.too_many("192.0.2.1", 102.0)


def test_an_allowance_never_grows_beyond_its_size() -> None:
    wrong = Wrong(at_once=2, a_second=1)
    wrong.note("a", 0.0)
    for _ in range(2):
        wrong.note("a", 1000.0)
    assert wrong.too_many("a", 1000.0)


def test_an_attacker_with_many_addresses_fills_no_memory(monkeypatch: object) -> None:
    wrong = Wrong()
    for number in range(limits.REMEMBERED + 50):
        wrong.note(f"address-{number}", 0.0)
    assert len(wrong._buckets) == limits.REMEMBERED


def test_counts_are_taken_up_to_the_limit_and_given_back() -> None:
    counts = Counts()
    assert counts.take("a", 2) and counts.take("a", 2) and counts.take("b", 2)
    assert not counts.take("a", 2)
    assert counts.total == 3
    counts.give_back("a")
    assert counts.take("a", 2)
    for _ in range(2):
        counts.give_back("a")
    counts.give_back("b")
    counts.give_back("b")
    assert counts.total == 0 and counts._held == {}
