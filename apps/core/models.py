"""Base models and the two tables that every change writes to: audit and outbox."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.core.actors import Actor
from apps.core.reasons import Explained, Reason, explain
from apps.core.scoping import EVERYTHING, NOTHING, ScopedManager
from apps.core.states import StateTable


class Record(models.Model):
    """A row with an opaque id; ids are random so that they say nothing and can be made anywhere."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True, db_index=True)
    updated_at = models.DateTimeField(_("changed"), auto_now=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()
    scope_through: ClassVar[tuple[str, ...]] = ()
    """The relations that `audit_scope` and `live_scope` read."""

    class Meta:
        abstract = True

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Which rows the actor may know of. Overridden by each model; nothing unless said otherwise."""
        return EVERYTHING if actor.is_admin else NOTHING

    def audit_scope(self) -> dict[str, Any]:
        """Where the row belongs, for the audit log: keys ``team_id`` and ``queue_id``."""
        return {}

    def live_scope(self) -> str:
        """The live-update group that hears of changes; empty means administrators only."""
        return ""


class Stateful(models.Model):
    """A row with a state. Only ``apps.core.transitions.transition`` writes these columns."""

    TABLE: ClassVar[StateTable]

    state = models.CharField(_("state"), max_length=20, db_index=True)
    state_since = models.DateTimeField(_("in this state since"), null=True, editable=False)
    reason_code = models.CharField(max_length=60, blank=True, default="")
    reason_params = models.JSONField(default=dict, blank=True)
    reason_evidence = models.JSONField(default=list, blank=True)

    class Meta:
        abstract = True

    @property
    def reason(self) -> Explained | None:
        """The stored reason in the active language."""
        return explain(self.reason_code, self.reason_params, self.reason_evidence)

    @property
    def state_label(self) -> str:
        """The state's word in the active language."""
        return str(self.TABLE.labels[self.state])

    @property
    def is_terminal(self) -> bool:
        """True when nothing can follow."""
        return self.state in self.TABLE.terminal

    def set_reason(self, reason: Reason | None) -> None:
        """Put a reason into the columns without saving; for ``transition`` and for new rows."""
        self.reason_code = reason.code if reason else ""
        self.reason_params = dict(reason.params) if reason else {}
        self.reason_evidence = list(reason.evidence) if reason else []


class Claimable(models.Model):
    """A row that workers claim one at a time (``apps.core.claims``).

    ``claim_token`` rises with each claim and fences late writers; ``pokes`` counts hints that arrived
    while the row was claimed, so that none is lost; ``due_at`` is when the sweep looks next.
    """

    claim_token = models.BigIntegerField(default=0, editable=False)
    claimed_until = models.DateTimeField(null=True, editable=False)
    due_at = models.DateTimeField(null=True, db_index=True, editable=False)
    pokes = models.BigIntegerField(default=0, editable=False)
    failures = models.PositiveIntegerField(default=0, editable=False)

    class Meta:
        abstract = True


class AuditEntry(models.Model):
    """One action: who, what, on which object, before and after. Append-only (a trigger refuses changes)."""

    at = models.DateTimeField(_("when"), auto_now_add=True, db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    actor_name = models.CharField(_("who"), max_length=150)
    token_id = models.UUIDField(null=True)
    address = models.GenericIPAddressField(null=True)
    verb = models.CharField(_("what"), max_length=60, db_index=True)
    object_kind = models.CharField(_("kind"), max_length=40)
    object_id = models.UUIDField(null=True, db_index=True)
    object_name = models.CharField(_("name"), max_length=200, blank=True)
    team_id = models.UUIDField(null=True, db_index=True)
    queue_id = models.UUIDField(null=True, db_index=True)
    detail = models.JSONField(default=dict)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")
        indexes = [models.Index(fields=["object_kind", "object_id", "-at"])]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.object_name}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Administrators see all, others what they did themselves; objects show their own history."""
        return EVERYTHING if actor.is_admin else Q(actor_id=actor.user_id)


class OutboxMessage(models.Model):
    """Something to deliver outside (mail, webhook), written in the transaction that caused it.

    ``key`` is unique, so the same cause can never be announced twice. Handlers are registered by topic
    (``apps.core.outbox``).
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    topic = models.CharField(max_length=60)
    key = models.CharField(max_length=200, unique=True)
    payload = models.JSONField()
    queue_id = models.UUIDField(null=True, db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)
    due_at = models.DateTimeField(null=True, db_index=True)
    attempts = models.PositiveIntegerField(default=0)
    delivered_at = models.DateTimeField(null=True)
    last_error = models.TextField(blank=True, default="")

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    def __str__(self) -> str:
        return self.key

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Administrators only; objects show their own deliveries."""
        return EVERYTHING if actor.is_admin else NOTHING


class Trouble(Record):
    """Something that lasts and that administrators have to see to; the row goes when it is over (``standing``).

    ``code`` names a wording, ``subject`` what it is about. ``told_at`` is when it was announced outside.
    """

    code = models.CharField(max_length=60)
    subject = models.CharField(max_length=200)
    params = models.JSONField(default=dict)
    evidence = models.JSONField(default=list)
    since = models.DateTimeField(_("since"))
    seen_at = models.DateTimeField()
    told_at = models.DateTimeField(null=True)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    class Meta:
        verbose_name = _("trouble")
        verbose_name_plural = _("troubles")
        constraints = [models.UniqueConstraint(fields=["code", "subject"], name="trouble_once")]

    def __str__(self) -> str:
        return f"{self.code} {self.subject}"

    @property
    def reason(self) -> Explained | None:
        """What is wrong and what to do, in the active language."""
        return explain(self.code, self.params, self.evidence)


class Pulse(models.Model):
    """When the control process last asked the workers through the broker, and when one last answered (``pulse``)."""

    name = models.CharField(max_length=20, primary_key=True)
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    told = models.BooleanField(default=False)

    objects: ClassVar[ScopedManager[Any]] = ScopedManager()

    def __str__(self) -> str:
        return self.name

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Administrators only."""
        return EVERYTHING if actor.is_admin else NOTHING
