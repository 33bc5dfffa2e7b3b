"""What REST takes and answers for flows, runs and attempts."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from apps.core.api import ReasonItem, StatefulItem
from apps.flows import forecast, masking
from apps.flows.models import Flow, Run, Trigger


class ScheduleForm(serializers.Serializer[Any]):
    """A cron expression in an IANA time zone; ``misfire`` is ``skip``, ``latest`` or ``all``."""

    cron = serializers.CharField()
    timezone = serializers.CharField(default="UTC")
    misfire = serializers.ChoiceField(choices=["skip", "latest", "all"], default="latest")
    enabled = serializers.BooleanField(default=True)


class RetriesForm(serializers.Serializer[Any]):
    """How often a failed program is run again, and the seconds between."""

    count = serializers.IntegerField(default=0)
    interval_s = serializers.IntegerField(default=30)


class VolumeForm(serializers.Serializer[Any]):
    """A volume of the queue at a path."""

    volume = serializers.CharField()
    path = serializers.CharField(required=False)
    read_only = serializers.BooleanField(default=False)  # type: ignore[assignment]  # hides Field.read_only, a bool


class NodeForm(serializers.Serializer[Any]):
    """A step; the fields after ``executor`` are those of the container executor."""

    name = serializers.CharField(default="main")
    executor = serializers.CharField(default="container")
    image = serializers.CharField()
    size = serializers.CharField()
    command = serializers.ListField(child=serializers.CharField(), required=False)
    args = serializers.ListField(child=serializers.CharField(), required=False)
    env = serializers.DictField(child=serializers.CharField(), required=False)
    working_dir = serializers.CharField(required=False)
    volumes = VolumeForm(many=True, required=False)
    needs = serializers.ListField(child=serializers.CharField(), required=False)
    retries = RetriesForm(required=False)
    timeout_s = serializers.IntegerField(required=False)


class AlertForm(serializers.Serializer[Any]):
    """Whom to tell of which ends."""

    on = serializers.ListField(child=serializers.ChoiceField(choices=["failed", "timeout", "succeeded"]))
    channel = serializers.ChoiceField(choices=["mail", "webhook"])
    to = serializers.ListField(child=serializers.EmailField(), required=False)
    url = serializers.CharField(required=False)


class FlowForm(serializers.Serializer[Any]):
    """A flow's document. It is read by the service, which names every fault with its place."""

    name = serializers.CharField()
    queue = serializers.CharField()
    schedules = ScheduleForm(many=True, required=False)
    nodes = NodeForm(many=True)
    alerts = AlertForm(many=True, required=False)


class FlowItem(StatefulItem):
    """A flow: its document, and when it fires next."""

    queue = serializers.CharField(source="queue.name")
    owner = serializers.CharField(source="owner.username")
    version = serializers.IntegerField(source="version.number")
    schedules = serializers.SerializerMethodField()
    nodes = serializers.SerializerMethodField()
    alerts = serializers.SerializerMethodField()
    next_fire_at = serializers.DateTimeField(allow_null=True)
    next_fires = serializers.SerializerMethodField()
    state_since = serializers.DateTimeField()

    @extend_schema_field(ScheduleForm(many=True))
    def get_schedules(self, obj: Flow) -> list[dict[str, Any]]:
        """From the current version."""
        return self._part(obj, "schedules")

    @extend_schema_field(NodeForm(many=True))
    def get_nodes(self, obj: Flow) -> list[dict[str, Any]]:
        """From the current version."""
        return self._part(obj, "nodes")

    @extend_schema_field(AlertForm(many=True))
    def get_alerts(self, obj: Flow) -> list[dict[str, Any]]:
        """From the current version. Addresses of webhooks are hidden from those who may not act on the flow."""
        rules = self._part(obj, "alerts")
        if not any(rule.get("url") for rule in rules):
            return rules
        return rules if self.context["acting"].on(obj.queue, obj.owner_id) else masking.alerts(rules)

    def get_next_fires(self, obj: Flow) -> list[str]:
        """The next five instants in UTC; none while it is paused."""
        return [moment.isoformat() for moment in forecast.next_fires(obj, timezone.now())]

    def get_links(self, obj: Any) -> dict[str, str]:
        """With the addresses of what can be done."""
        request = self.context["request"]
        names = ("run", "pause", "resume")
        more = {name: reverse(f"api:flow-{name}", args=[obj.pk], request=request) for name in names}
        runs = reverse("api:run-list", request=request)
        return {**super().get_links(obj), **more, "runs": f"{runs}?flow={obj.pk}"}

    def _part(self, obj: Flow, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = obj.version.document[name] if obj.version is not None else []
        return found


class NewFlowItem(FlowItem):
    """A new flow with the secret that signs its webhooks, shown this once."""

    webhook_secret = serializers.SerializerMethodField()

    def get_webhook_secret(self, obj: Flow) -> str | None:
        """Null in the answer to a repeated request."""
        return obj.webhook_secret.reveal() if self.context.get("is_new") and obj.webhook_secret else None


class RunForm(serializers.Serializer[Any]):
    """Texts that the program finds as ``PARAM_<name>`` in its environment."""

    parameters = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)


class RunItem(StatefulItem):
    """A run of a flow."""

    flow = serializers.CharField(source="flow.name")
    flow_id = serializers.UUIDField()
    queue = serializers.CharField(source="queue.name")
    version = serializers.IntegerField(source="version.number")
    trigger = serializers.ChoiceField(choices=Trigger.values)
    starter = serializers.CharField(source="starter.username", default=None, allow_null=True)
    scheduled_at = serializers.DateTimeField(allow_null=True)
    parameters = serializers.DictField(child=serializers.CharField())
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    note = serializers.SerializerMethodField()

    @extend_schema_field(ReasonItem(allow_null=True))
    def get_note(self, obj: Run) -> dict[str, Any] | None:
        """What is to say of how it came about, or null."""
        return obj.note.as_dict() if obj.note else None

    def get_links(self, obj: Any) -> dict[str, str]:
        """With the addresses of what can be done."""
        request = self.context["request"]
        more = {name: reverse(f"api:run-{name}", args=[obj.pk], request=request) for name in ("cancel", "rerun")}
        attempts = reverse("api:attempt-list", request=request)
        return {
            **super().get_links(obj),
            **more,
            "flow": reverse("api:flow-detail", args=[obj.flow_id], request=request),
            "attempts": f"{attempts}?run={obj.pk}",
        }


class AttemptItem(StatefulItem):
    """One try at one node of a run."""

    run = serializers.UUIDField(source="run_id")
    node = serializers.CharField()
    number = serializers.IntegerField()
    pod = serializers.CharField(source="pod_name")
    exit_code = serializers.IntegerField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    deadline_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    log_bytes = serializers.IntegerField()
    log_complete = serializers.BooleanField()

    def get_links(self, obj: Any) -> dict[str, str]:
        """With the log's address."""
        request = self.context["request"]
        return {
            **super().get_links(obj),
            "log": reverse("api:attempt-log", args=[obj.pk], request=request),
            "run": reverse("api:run-detail", args=[obj.run_id], request=request),
            "give-up": reverse("api:attempt-give-up", args=[obj.pk], request=request),
        }


class FlowPage(serializers.Serializer[Any]):
    """A page of flows."""

    items = FlowItem(many=True)
    next = serializers.CharField(allow_null=True)


class RunPage(serializers.Serializer[Any]):
    """A page of runs."""

    items = RunItem(many=True)
    next = serializers.CharField(allow_null=True)


class AttemptPage(serializers.Serializer[Any]):
    """A page of attempts."""

    items = AttemptItem(many=True)
    next = serializers.CharField(allow_null=True)


class NextFiresForm(serializers.Serializer[Any]):
    """A schedule that is not saved."""

    cron = serializers.CharField(allow_blank=True)
    timezone = serializers.CharField(default="UTC")


class NextFiresItem(serializers.Serializer[Any]):
    """The next five instants in UTC."""

    next_fires = serializers.ListField(child=serializers.DateTimeField())


class SecretItem(serializers.Serializer[Any]):
    """A secret, shown this once."""

    webhook_secret = serializers.CharField()
