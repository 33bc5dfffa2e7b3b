"""Template tags of flows."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from django import template
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from apps.core import quantities
from apps.flows.states import RUN_STATES

register = template.Library()


@register.simple_tag
def at_in(moment: datetime, zone: str) -> SafeString:
    """An instant as a clock in that time zone shows it."""
    local = moment.astimezone(ZoneInfo(zone))
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), local.strftime("%Y-%m-%d %H:%M %Z"))


@register.filter
def run_word(state: str) -> str:
    """The word of a run's state in the active language."""
    return str(RUN_STATES.labels[state])


@register.filter
def minute(text: str) -> str:
    """An instant out of JSON, to the minute."""
    moment = parse_datetime(text)
    return f"{moment:%Y-%m-%d %H:%M}" if moment is not None else ""


@register.filter
def took(seconds: float | None) -> str:
    """How long something ran. Clusters tell whole seconds, so nothing is ever said to have taken none."""
    if seconds is None:
        return ""
    return _("under 1 s") if seconds < 1 else quantities.span(round(seconds))
