"""Every cause and every end that kubekit can name has a sentence and a next step."""

from __future__ import annotations

from apps.clusters.wording import WORDINGS as CAUSES
from apps.flows.wording import WORDINGS as ENDS
from kubekit.diagnose import END_CODES, FINDING_CODES


def test_every_cause_is_put_into_words() -> None:
    assert set(CAUSES) >= FINDING_CODES


def test_every_end_of_an_attempt_but_success_is_put_into_words() -> None:
    assert set(CAUSES) | set(ENDS) >= END_CODES - {"succeeded"}


def test_no_wording_leaves_the_reader_without_a_next_step() -> None:
    assert all(str(wording.sentence) and str(wording.next) for wording in CAUSES.values())
