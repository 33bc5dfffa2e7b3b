"""``{{ event.sentence|event_words }}``: what the cluster reported, in the reader's language."""

from __future__ import annotations

from django import template

from apps.clusters.event_words import in_words

register = template.Library()


@register.filter
def event_words(sentence: str) -> str:
    """The stored English sentence in the active language."""
    return in_words(sentence)
