"""The cluster's events in the reader's language.

``kubekit.events`` says them in plain English and rows keep that text. Here each of its sentences has a pattern, so that
an event of last week reads in Chinese to whom Chinese is the language; what fits no pattern stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

from django.utils.translation import gettext, gettext_noop

PATTERNS = (
    gettext_noop("A place was found on {node}."),
    gettext_noop("A place was found."),
    gettext_noop("No node can take it yet: {why}"),
    gettext_noop("No further node can be added that would fit it."),
    gettext_noop("A further node is being added for it."),
    gettext_noop("It had to make room for something of a higher priority."),
    gettext_noop("The node made room for something of a higher priority."),
    gettext_noop("Pulling the image {image}."),
    gettext_noop("The image is already on the node: {image}."),
    gettext_noop("The image {image} was pulled in {time}."),
    gettext_noop("The image {image} was pulled."),
    gettext_noop("The image {image} is not on the node and may not be pulled."),
    gettext_noop("The image {image} could not be pulled."),
    gettext_noop("The image's name is not valid: {image}."),
    gettext_noop("Waiting before the image {image} is pulled again."),
    gettext_noop("The container was made."),
    gettext_noop("The program was started."),
    gettext_noop("The program is being stopped."),
    gettext_noop("The program keeps ending; waiting before it is started again."),
    gettext_noop("The command does not exist in the image."),
    gettext_noop("The container could not be started: {why}"),
    gettext_noop("It does not answer yet: {why}"),
    gettext_noop("A volume could not be mounted: {why}"),
    gettext_noop("A volume could not be attached to the node: {why}"),
    gettext_noop("The volume was attached to the node."),
    gettext_noop("The volume has no storage behind it yet: {why}"),
    gettext_noop("Storage for the volume could not be made: {why}"),
    gettext_noop("Storage for the volume is being made."),
    gettext_noop("Waiting for the storage system to make the volume."),
    gettext_noop("Storage for the volume was made."),
    gettext_noop("The volume will be made where its first user runs."),
    gettext_noop("The pod could not be made: {why}"),
    gettext_noop("The pod was made."),
    gettext_noop("The pod was deleted."),
    gettext_noop("The node could not prepare the pod's network: {why}"),
    gettext_noop("The node threw it out: {why}"),
    gettext_noop("The node may not run it any longer."),
    gettext_noop("The node has stopped answering."),
    gettext_noop("It ran longer than allowed."),
    gettext_noop("The node ran out of memory and killed a program."),
    gettext_noop("The node was restarted."),
)
"""In the order of trying: what says more stands first."""


@lru_cache(maxsize=1)
def _matchers() -> tuple[tuple[re.Pattern[str], str], ...]:
    def matcher(pattern: str) -> re.Pattern[str]:
        parts = re.split(r"\{([a-z]+)\}", pattern)
        source = "".join(f"(?P<{part}>.*)" if position % 2 else re.escape(part) for position, part in enumerate(parts))
        return re.compile(source, re.DOTALL)

    return tuple((matcher(pattern), pattern) for pattern in PATTERNS)


def pattern_of(sentence: str) -> str:
    """The pattern that a sentence follows; empty when it is the cluster's own text."""
    return next((pattern for matcher, pattern in _matchers() if matcher.fullmatch(sentence)), "")


def in_words(sentence: str) -> str:
    """The sentence in the active language."""
    for matcher, pattern in _matchers():
        found = matcher.fullmatch(sentence)
        if found is not None:
            return gettext(pattern).format(**found.groupdict())
    return sentence
