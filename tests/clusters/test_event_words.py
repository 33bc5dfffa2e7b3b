"""Every sentence that kubekit says of an event is known here, and reads in Chinese."""

from __future__ import annotations

import re

import pytest
from django.utils import translation

from apps.clusters.event_words import PATTERNS, in_words, pattern_of
from kubekit import events

MESSAGES = (
    "Successfully assigned ns/pod to node-7",
    'Container image "registry/x:1" already present on machine',
    'Successfully pulled image "registry/x:1" in 1.5s (1.5s including waiting)',
    'Failed to pull image "registry/x:1": not found',
    'Back-off pulling image "registry/x:1"',
    "exec: executable file not found in $PATH",
    "something else",
)


@pytest.mark.parametrize("reason", sorted(events._SENTENCES))
@pytest.mark.parametrize("message", MESSAGES)
def test_each_sentence_of_kubekit_has_a_pattern(reason: str, message: str) -> None:
    sentence = events.observe_event({"reason": reason, "message": message}).sentence
    assert pattern_of(sentence), sentence
    assert in_words(sentence) == sentence


def test_each_pattern_is_translated_with_its_parts() -> None:
    with translation.override("zh-hans"):
        for pattern in PATTERNS:
            filled = re.sub(r"\{[a-z]+\}", "PART", pattern)
            text = in_words(filled)
            assert re.search("[一-鿿]", text), text
            assert text.count("PART") == filled.count("PART"), text


def test_the_clusters_own_text_stays_as_it_is() -> None:
    with translation.override("zh-hans"):
        assert in_words("0/3 nodes: who knows") == "0/3 nodes: who knows"
