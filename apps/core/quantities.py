"""Quantities as people read them: one place, so that every page, banner and mail says them alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
JUST_NOW_S = 5


def number(value: float, digits: int = 1) -> str:
    """At most ``digits`` decimals and no trailing zeros."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def size(count: int) -> str:
    """Bytes in the largest unit that leaves at least one: ``1.5 GiB``."""
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{number(value)} {UNITS[unit]}"


def cpus(millis: int) -> str:
    """Thousandths of a CPU as ``0.5 CPU``."""
    return f"{number(millis / 1000, 3)} CPU"


def span(seconds: float) -> str:
    """A duration as ``850 ms``, ``8.2 s``, ``2 min 05 s``, ``3 h 04 min`` or ``2 d 3 h``."""
    if seconds < 1:
        return _("%(n)d ms") % {"n": round(seconds * 1000)}
    if seconds < 10:
        return _("%(n)s s") % {"n": number(seconds)}
    whole = round(seconds)
    if whole < 60:
        return _("%(n)s s") % {"n": whole}
    if whole < 3600:
        return _("%(m)d min %(s)02d s") % {"m": whole // 60, "s": whole % 60}
    if whole < 48 * 3600:
        return _("%(h)d h %(m)02d min") % {"h": whole // 3600, "m": whole % 3600 // 60}
    return _("%(d)d d %(h)d h") % {"d": whole // 86400, "h": whole % 86400 // 3600}


def relative(moment: datetime, *, now: datetime | None = None) -> str:
    """An instant seen from now: ``5 min ago``, ``in 2 h``. ``static/portal/time.js`` counts on with the same words."""
    away = moment - (now or timezone.now())
    ahead = away > timedelta(0)
    seconds = abs(away.total_seconds())
    if seconds < JUST_NOW_S:
        return _("just now")
    amount = _amount(seconds)
    return (_("in %(amount)s") if ahead else _("%(amount)s ago")) % {"amount": amount}


def about(seconds: float) -> str:
    """A length of time as rules and offers say it, without seconds: ``15 min``, ``8 h``, ``3 h 45 min``, ``3 days``."""
    minutes = round(seconds / 60)
    return span(60 * minutes) if 60 <= minutes < 48 * 60 and minutes % 60 else _amount(seconds)


def _amount(seconds: float) -> str:
    if seconds < 60:
        return _("%(n)s s") % {"n": int(seconds)}
    if seconds < 3600:
        return _("%(n)d min") % {"n": seconds // 60}
    if seconds < 48 * 3600:
        return _("%(n)d h") % {"n": seconds // 3600}
    days = int(seconds // 86400)
    return ngettext("%(n)d day", "%(n)d days", days) % {"n": days}


def few(texts: Sequence[str], *, between: str = ", ", most: int = 5) -> str:
    """The first of them in one line, and a sign that there are more."""
    return between.join(texts[:most]) + (" …" if len(texts) > most else "")
