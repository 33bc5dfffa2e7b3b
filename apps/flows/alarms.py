"""Alarms: written to the outbox by the transaction that ends the run, so that none is lost and none is doubled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _

from apps.alerts import delivery
from apps.core.reasons import Explained, explain
from apps.flows import logs
from apps.flows.document import AlertDoc, stored
from apps.flows.endings import TIMEOUT_CODES
from apps.flows.models import Attempt, Run
from apps.flows.states import RunState
from apps.tenants import selectors as tenants

LOG_LINES = 10
Told = Callable[[], Explained | None]
"""Says a reason in the language that is active when it is called."""


def run_ended(run: Run, _before: str, after: str) -> None:
    """The hook on a run's transitions."""
    event = event_of(after, run.reason_code)
    if event is not None:
        _announce(run, after, event, reason=lambda: run.reason, finished_at=run.finished_at)


def timed_out_on_silent_node(run: Run, *, timeout_s: int, node: str) -> None:
    """The alarm of a time-out that cannot be carried out; inside the transaction that says so at the run.

    Its key is that of the end, which may never come: so the end tells it no second time.
    """
    params = {"timeout_s": timeout_s, "node": node}
    _announce(run, run.state, "timeout", reason=lambda: explain("timeout_node_silent", params, ()), finished_at=None)


def _announce(run: Run, state: str, event: str, *, reason: Told, finished_at: datetime | None) -> None:
    """A mail is in the language of whoever has its address; all else in that of the flow's owner."""
    row = Run.objects.as_system().select_related("flow__queue", "flow__owner", "version", "queue").get(pk=run.pk)
    rules = [rule for rule in stored(row.version.document).alerts if concerns(rule, event)]
    if not rules:
        return
    told = _Story(row, state, event, reason=reason, finished_at=finished_at)
    default = tenants.language_of(row.flow.owner)
    known = tenants.languages_by_mail([address for rule in rules for address in rule.to])
    for number, rule in enumerate(rules):
        key = f"{run.pk}:{event}:{rule.channel}:{number}"
        if rule.channel == "mail":
            for address in rule.to:
                with translation.override(known.get(address, default)):
                    delivery.put_mail(key=key, to=[address], queue_id=run.queue_id, **told.mail())
        else:
            secret = row.flow.webhook_secret
            with translation.override(default):
                body = told.webhook()
            delivery.put_webhook(
                key=key,
                url=rule.url,
                body=body,
                signing_secret=secret.reveal() if secret else "",
                queue_id=run.queue_id,
            )


def event_of(state: str, reason_code: str) -> str | None:
    """The one event that an end is; a cancelled or skipped run is none."""
    if state == RunState.FAILED:
        return "timeout" if reason_code in TIMEOUT_CODES else "failed"
    return "succeeded" if state == RunState.SUCCEEDED else None


def concerns(rule: AlertDoc, event: str) -> bool:
    """A time-out is a failure: a rule for either hears of it, once."""
    return event in rule.on or (event == "timeout" and "failed" in rule.on)


class _Story:
    """What an alarm tells; the same for every channel, in the active language."""

    def __init__(self, row: Run, state: str, event: str, *, reason: Told, finished_at: datetime | None) -> None:
        self.run, self.state, self.event = row, state, event
        self.tell_reason = reason
        self.finished_at = finished_at
        attempts = Attempt.objects.as_system().filter(run=row).order_by("number")
        self.last: Attempt | None = attempts.last()
        self.count = self.last.number if self.last is not None else 0
        self.log = logs.tail(self.last, LOG_LINES) if self.last is not None else ""
        self.url = f"{settings.PORTAL_ORIGIN}{row.get_absolute_url()}"

    def mail(self) -> dict[str, str]:
        """Subject and text."""
        words = {"failed": _("failed"), "timeout": _("timed out"), "succeeded": _("succeeded")}
        subject = _("The flow %(flow)s %(what)s") % {"flow": self.run.flow.name, "what": words[self.event]}
        rows = [
            _("Flow: %(flow)s (queue %(queue)s)") % {"flow": self.run.flow.name, "queue": self.run.queue.name},
            _("Run: %(name)s") % {"name": self.run.name},
            _("Attempts: %(count)d") % {"count": self.count},
        ]
        reason = self.tell_reason()
        if reason is not None:
            rows += ["", reason.sentence, reason.next]
        if self.log:
            rows += ["", _("The end of the log:"), *(f"    {line}" for line in self.log.split("\n"))]
        rows += ["", self.url]
        return {"subject": subject, "text": "\n".join(rows)}

    def webhook(self) -> dict[str, Any]:
        """The call's body."""
        run, flow, reason = self.run, self.run.flow, self.tell_reason()
        return {
            "type": f"run.{self.event}",
            "timestamp": self.finished_at.isoformat() if self.finished_at else None,
            "data": {
                "flow": {"id": str(flow.pk), "name": flow.name},
                "queue": run.queue.name,
                "run": {
                    "id": str(run.pk),
                    "state": self.state,
                    "trigger": run.trigger,
                    "scheduled_at": run.scheduled_at.isoformat() if run.scheduled_at else None,
                    "attempts": self.count,
                    "exit_code": self.last.exit_code if self.last is not None else None,
                    "url": self.url,
                },
                "reason": reason.as_dict() if reason is not None else None,
                "log_tail": self.log,
            },
        }
