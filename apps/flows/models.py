"""Flows, their versions and schedules; runs, their attempts and the log."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.clusters.eventful import Eventful
from apps.core.actors import Actor
from apps.core.models import Claimable, Record, Stateful
from apps.core.reasons import Explained, explain
from apps.core.scoping import EVERYTHING, ScopedManager
from apps.core.secret import SecretField
from apps.core.states import StateTable
from apps.flows.states import ATTEMPT_ALIVE, ATTEMPT_STATES, FLOW_STATES, RUN_STATES, Charge, FlowState, StopCause
from apps.tenants.models import InQueue, Queue, team_ids


class Flow(InQueue, Record, Stateful):
    """A task flow: what to run and when. What it does is its current version's document.

    Deleted ones stay visible as well, because their runs point at them.

    ``webhook_secret`` signs the calls of its webhook alarms; it is shown once when it is made.
    """

    TABLE: ClassVar[StateTable] = FLOW_STATES

    name = models.CharField(_("name"), max_length=63)
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="flows", verbose_name=_("queue"))
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="flows", verbose_name=_("owner")
    )
    version = models.ForeignKey("FlowVersion", on_delete=models.PROTECT, null=True, related_name="+")
    webhook_secret = SecretField(blank=True, default="")

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    class Meta:
        verbose_name = _("flow")
        verbose_name_plural = _("flows")
        constraints = [
            models.UniqueConstraint(
                fields=["queue", "name"], condition=~Q(state=FlowState.DELETED), name="flow_name_alive"
            )
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("flows:flow", args=[self.pk])


class FlowVersion(Record):
    """One wording of a flow; never changed (a change is the next version).

    ``document`` is the REST body of a flow, complete and with names; ``resolved`` the ids that those names meant:
    ``{"<node>": {"image": id, "size": id, "volumes": [id, ...]}}``.
    """

    # Without indexes of their own: (flow, number) and (flow, position) below begin with the flow.
    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    document = models.JSONField()
    resolved = models.JSONField(default=dict)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["flow", "number"], name="flow_version_once")]

    def __str__(self) -> str:
        return f"{self.flow_id} v{self.number}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """As the flow."""
        return EVERYTHING if actor.is_admin else Q(flow__queue__team_id__in=team_ids(actor))

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert only."""
        if not self._state.adding:
            self._refuse()
        super().save(*args, **kwargs)

    def _refuse(self) -> NoReturn:
        raise TypeError("a flow's version never changes: make the next one")


class Misfire(models.TextChoices):
    """What happens to instants that passed while no scheduler ran."""

    SKIP = "skip", _("run none of them")
    LATEST = "latest", _("run the latest of them")
    ALL = "all", _("run all of them, up to a limit")


class Schedule(Record):
    """One cron line of a flow. ``next_fire_at`` is null while nothing is to fire (paused, deleted, disabled)."""

    flow = models.ForeignKey(Flow, on_delete=models.CASCADE, related_name="schedules", db_index=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    position = models.PositiveSmallIntegerField(default=0)
    cron = models.CharField(_("cron expression"), max_length=100)
    timezone = models.CharField(_("time zone"), max_length=64)
    misfire = models.CharField(_("after downtime"), max_length=10, choices=Misfire.choices, default=Misfire.LATEST)
    enabled = models.BooleanField(_("enabled"), default=True)
    next_fire_at = models.DateTimeField(_("next run"), null=True)

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["flow", "position"], name="schedule_once")]
        indexes = [models.Index(fields=["next_fire_at"], condition=Q(next_fire_at__isnull=False), name="schedule_due")]

    def __str__(self) -> str:
        return f"{self.cron} {self.timezone}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """As the flow."""
        return EVERYTHING if actor.is_admin else Q(flow__queue__team_id__in=team_ids(actor))


class Trigger(models.TextChoices):
    """What started a run."""

    SCHEDULE = "schedule", _("schedule")
    MANUAL = "manual", _("by hand")
    RERUN = "rerun", _("run again")
    API = "api", _("API")


class Run(InQueue, Record, Stateful):
    """One execution of a flow's version. ``scheduled_at`` is the instant it stands for, null when not scheduled.

    ``parameters`` are text values that the program finds as ``PARAM_<name>`` in its environment.
    """

    TABLE: ClassVar[StateTable] = RUN_STATES

    # A tick inserts thousands of rows: an index that another one begins with, or that only a deletion would use, is
    # left out. Versions, persons and runs are never deleted.
    flow = models.ForeignKey(
        Flow, on_delete=models.PROTECT, related_name="runs", verbose_name=_("flow"), db_index=False
    )
    version = models.ForeignKey(FlowVersion, on_delete=models.PROTECT, related_name="runs", db_index=False)
    queue = models.ForeignKey(
        Queue, on_delete=models.PROTECT, related_name="runs", verbose_name=_("queue"), db_index=False
    )
    state = models.CharField(_("state"), max_length=20)
    scheduled_at = models.DateTimeField(_("scheduled for"), null=True)
    trigger = models.CharField(_("started by"), max_length=10, choices=Trigger.choices)
    starter = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    rerun_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="reruns", db_index=False)
    parameters = models.JSONField(default=dict)
    note_code = models.CharField(max_length=60, blank=True, default="")
    note_params = models.JSONField(default=dict)
    started_at = models.DateTimeField(_("started"), null=True)
    finished_at = models.DateTimeField(_("ended"), null=True)

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        constraints = [models.UniqueConstraint(fields=["flow", "scheduled_at"], name="run_once_per_instant")]
        indexes = [
            models.Index(fields=["flow", "-created_at"], name="run_of_flow"),
            models.Index(fields=["queue", "-created_at"], name="run_of_queue"),
            models.Index(fields=["state", "-created_at"], name="run_in_state"),
        ]

    def __str__(self) -> str:
        return f"{self.flow_id} {self.scheduled_at or self.created_at}"

    @property
    def name(self) -> str:
        """A run is called after its flow and the instant it stands for."""
        moment = self.scheduled_at or self.created_at
        return f"{self.flow.name} {moment:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def note(self) -> Explained | None:
        """What is to say of how it came about (catching up), in the active language."""
        return explain(self.note_code, self.note_params, ())

    @property
    def seconds(self) -> float | None:
        """How long it ran, or has run so far."""
        if self.started_at is None:
            return None
        return ((self.finished_at or timezone.now()) - self.started_at).total_seconds()

    def get_absolute_url(self) -> str:
        return reverse("flows:run", args=[self.pk])


class Attempt(InQueue, Record, Stateful, Claimable, Eventful):
    """One try at one node of a run: exactly one pod, or none.

    ``not_before`` is the earliest start (retry interval). ``pod_name`` is set before the pod is asked for, ``pod_uid``
    when it is known to exist. ``ending`` is how it ended, stored before the finished pod is let go:
    ``{"state", "charge", "code", "params", "evidence"}``. ``log_mark`` is where the collector goes on: the time stamp
    of the last stored line and how many stored lines bear it.
    """

    TABLE: ClassVar[StateTable] = ATTEMPT_STATES

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="attempts")
    state = models.CharField(_("state"), max_length=20)
    due_at = models.DateTimeField(null=True, editable=False)
    node = models.CharField(_("node"), max_length=63)
    number = models.PositiveIntegerField(_("attempt"))
    not_before = models.DateTimeField()
    pod_name = models.CharField(max_length=63, blank=True, default="")
    pod_uid = models.CharField(max_length=60, blank=True, default="")
    stop_cause = models.CharField(max_length=20, blank=True, default="", choices=[(c, c) for c in StopCause])
    start_deadline_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(_("started"), null=True)
    deadline_at = models.DateTimeField(_("time-out at"), null=True)
    finished_at = models.DateTimeField(_("ended"), null=True)
    exit_code = models.IntegerField(_("exit code"), null=True)
    charge = models.CharField(max_length=10, blank=True, default="", choices=[(c, c) for c in Charge])
    ending = models.JSONField(null=True)
    log_bytes = models.BigIntegerField(default=0)
    log_mark = models.JSONField(null=True)
    log_complete = models.BooleanField(default=False)
    log_truncated = models.BooleanField(default=False)

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        constraints = [models.UniqueConstraint(fields=["run", "node", "number"], name="attempt_once")]
        indexes = [
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False), name="attempt_due"),
            models.Index(fields=["state"], condition=Q(state__in=ATTEMPT_ALIVE), name="attempt_alive"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.node} {self.number}"

    @property
    def seconds(self) -> float | None:
        """How long its program ran, or has run so far."""
        if self.started_at is None:
            return None
        return ((self.finished_at or timezone.now()) - self.started_at).total_seconds()

    @property
    def name(self) -> str:
        """Node and number, for audit and API."""
        return f"{self.node} {self.number}"

    def get_absolute_url(self) -> str:
        return f"{reverse('flows:run-tab', args=[self.run_id, 'log'])}?attempt={self.pk}"


class LogChunk(models.Model):
    """A compressed piece of an attempt's log: bytes ``first`` to ``first + size`` (uncompressed).

    ``day`` is the attempt's own (not the chunk's), so that all of a log lies in one partition.
    """

    pk = models.CompositePrimaryKey("day", "attempt_id", "first")
    day = models.DateField()
    attempt_id = models.UUIDField()
    first = models.BigIntegerField()
    size = models.PositiveIntegerField()
    packed = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    def __str__(self) -> str:
        return f"{self.attempt_id} {self.first}"

    @classmethod
    def visible_to(cls, actor: Actor) -> Q:
        """Chunks of the attempts that the actor sees."""
        return Q(attempt_id__in=Attempt.objects.for_actor(actor).values("pk"))
