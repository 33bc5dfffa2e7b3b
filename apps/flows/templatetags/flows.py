"""Template tags of flows."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def at_in(moment: datetime, zone: str) -> SafeString:
    """An instant as a clock in that time zone shows it."""
    local = moment.astimezone(ZoneInfo(zone))
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), local.strftime("%Y-%m-%d %H:%M %Z"))
