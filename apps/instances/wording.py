"""Reasons that only instances have; those of the cluster are in ``apps.clusters.wording``."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_lazy as _

from apps.core.reasons import Wording

WORDINGS: Mapping[str, Wording] = {
    "instance_not_answering": Wording(
        sentence=_("It runs but does not answer at the moment."),
        next=_("It may be very busy. The log says what it is doing; restart it if it lasts."),
        action="restart",
        tone="waiting",
    ),
    "key_not_rotated": Wording(
        sentence=_("The new key has not reached the running program; the one before it is still valid."),
        next=_("It is tried again every few seconds. A restart makes a new key as well."),
        action="restart",
        tone="waiting",
    ),
    "stopped_idle": Wording(
        sentence=_("It was stopped, because nothing happened in it for {minutes} min: that is the rule of {team}."),
        next=_("Files are as they were, and it holds nothing but its volumes. Start it when you need it."),
        action="start",
        tone="info",
    ),
    "stopped_at_end": Wording(
        sentence=_("It was stopped, because its time was over."),
        next=_("Files are as they were, and it holds nothing but its volumes. Start it when you need it."),
        action="start",
        tone="info",
    ),
    "instance_came_back": Wording(
        sentence=_("The program ended (exit code {exit_code}) and was started again. What lived in memory is lost."),
        next=_("Files are as they were. The log of the earlier program is in the evidence."),
        tone="info",
    ),
    "instance_came_back_memory": Wording(
        sentence=_(
            "It used more memory than its size allows, was killed and started again. What lived in memory is lost."
        ),
        next=_("Files are as they were. Use less memory, or stop it and choose a larger size."),
        tone="info",
    ),
}
