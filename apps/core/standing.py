"""What is wrong with the portal itself and does not pass by itself: noted while it lasts, shown to administrators.

Whoever looks at something regularly calls ``note`` while it is wrong and ``over`` when it is not. What has lasted is
told outside once, by a hook in the transaction that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.core import home, live, reasons
from apps.core.actors import Actor
from apps.core.home import Look, Panel
from apps.core.models import Trouble
from apps.core.reasons import Wording

#: What is over sooner is told nobody outside.
LASTING = timedelta(minutes=5)
#: So many are on the page of an administrator; the REST list has all.
SHOWN = 8
Hook = Callable[[Trouble], None]
_hooks: list[Hook] = []

SET_ASIDE, WORKERS_SILENT = "row_set_aside", "workers_silent"
WORDINGS = {
    WORKERS_SILENT: Wording(
        sentence=_("No worker answers, so what people ask for is not carried out."),
        next=_("Look at the workers' log and at Redis; restarting the worker is harmless."),
    ),
    SET_ASIDE: Wording(
        sentence=_("{what} could not be brought up to date {times} times in a row; it is tried less often now."),
        next=_("The evidence and the portal's log say why. A change of the object has it tried at once."),
    ),
}


def on_lasting(hook: Hook) -> None:
    """Call ``hook(trouble)`` once, when a trouble has lasted, inside the transaction that notes it."""
    _hooks.append(hook)


def note(
    code: str,
    subject: str,
    *,
    params: Mapping[str, Any],
    evidence: Sequence[str] = (),
    lasting: timedelta | None = LASTING,
    anew: Callable[[Trouble], bool] = lambda _before: False,
) -> None:
    """It is wrong (still). After ``lasting`` it is told outside, too; None: it is only shown.

    ``anew``: whether it is another trouble than the one that is known, which begins now.
    """
    now = timezone.now()
    with transaction.atomic():
        values = {"params": dict(params), "evidence": list(evidence), "seen_at": now}
        rows = Trouble.objects.as_system()
        row, made = rows.select_for_update().get_or_create(
            code=code, subject=subject, defaults={**values, "since": now}
        )
        if not made and anew(row):
            row.since, row.told_at = now, None
        for name, value in values.items():
            setattr(row, name, value)
        if lasting is not None and row.told_at is None and now - row.since >= lasting:
            row.told_at = now
            for hook in _hooks:
                hook(row)
        row.save()
        live.announce(row)


def over(code: str, subject: str) -> None:
    """It is well (again)."""
    with transaction.atomic():
        row = Trouble.objects.as_system().select_for_update().filter(code=code, subject=subject).first()
        if row is not None:
            live.announce(row)
            row.delete()


def _panel(actor: Actor, _look: Look) -> dict[str, Any]:
    found = list(Trouble.objects.for_actor(actor).order_by("since")[:SHOWN]) if actor.is_admin else []
    return {"troubles": found, "empty": not found}


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    reasons.register(WORDINGS)
    home.register(Panel(name="troubles", template="core/panel_troubles.html", context=_panel, order=1, live="trouble"))
