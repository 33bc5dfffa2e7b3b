"""REST for dev instances."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.api import StatefulItem
from apps.instances import (
    api_options,
    changing,
    choices,
    entering,
    entrances,
    forecast,
    rotating,
    selectors,
    services,
    ssh,
    stages,
    startlog,
    startup,
)
from apps.instances.api_changing import (
    DRY_RUN,
    ChangeForm,
    ChangeItem,
    MountForm,
    PlanItem,
    ask,
    is_dry_run,
    plan_item,
)
from apps.instances.api_handing import HandingActions
from apps.instances.api_options import OptionsForm, OptionsItem
from apps.instances.api_ports import PortActions
from apps.instances.lifetime import keeping
from apps.instances.lifetime.api import LifetimeActions, LifetimeItem
from apps.instances.models import Instance
from apps.instances.spec import url_of

NO_STORE = {"Cache-Control": "no-store"}


class InstanceForm(OptionsForm):
    """What a new instance needs: image, size and queue, each by name or id. The name is proposed when left out.

    ``own_image`` is a reference in place of ``image``, where the queue's team may use images that are not in the
    catalogue.
    """

    name = serializers.CharField(default="", allow_blank=True, trim_whitespace=True)
    image = serializers.CharField(max_length=100, default="", allow_blank=True)
    own_image = serializers.CharField(max_length=1000, default="", allow_blank=True, trim_whitespace=True)
    size = serializers.CharField(max_length=100)
    queue = serializers.CharField(max_length=100)
    volumes = MountForm(many=True, default=list)
    ends_at = serializers.DateTimeField(allow_null=True, default=None)


class ForecastForm(serializers.Serializer[Any]):
    """What should run where."""

    queue = serializers.CharField(max_length=100)
    size = serializers.CharField(max_length=100)


class ForecastItem(serializers.Serializer[Any]):
    """``now``, ``queued`` or ``never``, why, and the change that would fit."""

    answer = serializers.ChoiceField(choices=["now", "queued", "never"])
    code = serializers.CharField()
    sentence = serializers.CharField()
    change = serializers.CharField()
    size_that_fits = serializers.CharField(allow_null=True)


class StageItem(serializers.Serializer[Any]):
    """A stage of the last start: when it was reached, seconds after the one before."""

    name = serializers.CharField()
    at = serializers.DateTimeField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)


#: Made once: a serializer of its own for each row of a list would cost more than all that it writes.
_STAGE = StageItem()


class EntrancesItem(serializers.Serializer[Any]):
    """``jupyterlab`` is null until it is known; ``why`` and ``sentence`` say why there is none. SSH is always there."""

    jupyterlab = serializers.BooleanField(allow_null=True)
    why = serializers.CharField(allow_null=True)
    sentence = serializers.CharField(allow_blank=True)


class MountItem(serializers.Serializer[Any]):
    """A mounted volume."""

    volume = serializers.CharField(source="volume.name")
    path = serializers.CharField()
    read_only = serializers.BooleanField()  # type: ignore[assignment]  # hides Field.read_only, a bool


class InstanceItem(StatefulItem):
    """A dev instance. ``url`` is its own host; the key is asked for apart."""

    queue = serializers.CharField(source="queue.name")
    owner = serializers.CharField(source="owner.username")
    image = serializers.CharField(source="image.name")
    size = serializers.CharField(source="size.name")
    home = serializers.CharField(source="home.name")
    volumes = MountItem(source="mounted", many=True)
    options = serializers.SerializerMethodField()
    revision = serializers.IntegerField()
    waiting = serializers.SerializerMethodField()
    desired = serializers.CharField()
    launch = serializers.IntegerField()
    url = serializers.SerializerMethodField()
    node = serializers.CharField()
    state_since = serializers.DateTimeField()
    start_requested_at = serializers.DateTimeField(allow_null=True)
    ready_at = serializers.DateTimeField(allow_null=True)
    stages = serializers.SerializerMethodField()
    entrances = serializers.SerializerMethodField()
    key_on_its_way = serializers.SerializerMethodField()
    lifetime = LifetimeItem(source="shown")

    def get_url(self, obj: Instance) -> str:
        """JupyterLab's address."""
        return url_of(obj)

    @extend_schema_field(OptionsItem)
    def get_options(self, obj: Instance) -> dict[str, Any]:
        """Variables, start-up script, shared memory, time zone."""
        return api_options.item(obj)

    @extend_schema_field(ChangeItem(many=True))
    def get_waiting(self, obj: Instance) -> list[dict[str, Any]]:
        """What was changed while it runs and counts from its next start on."""
        found: list[dict[str, Any]] = changing.waiting(obj).as_dict()["changes"]
        return found

    @extend_schema_field(EntrancesItem)
    def get_entrances(self, obj: Instance) -> dict[str, Any]:
        """What the image gives besides SSH."""
        return {
            "jupyterlab": entrances.has_lab(obj),
            "why": obj.entrances.get("why"),
            "sentence": entrances.sentence(obj),
        }

    def get_key_on_its_way(self, obj: Instance) -> bool:
        """Whether a new key was asked for that the running program does not have yet; until then the old one opens."""
        return bool(obj.next_key)

    @extend_schema_field(StageItem(many=True))
    def get_stages(self, obj: Instance) -> list[dict[str, Any]]:
        """The last start, stage by stage."""
        return [dict(_STAGE.to_representation(one)) for one in stages.rows(obj)]

    def get_links(self, obj: Any) -> dict[str, str]:
        """With the addresses of what can be done."""
        more = {
            name: self.address(name, obj.pk)
            for name in ("start", "stop", "restart", "ticket", "key", "rotate-key", "keep", "end", "events")
        }
        return {**super().get_links(obj), **more, "open": url_of(obj)}


class InstancePage(serializers.Serializer[Any]):
    """A page of instances."""

    items = InstanceItem(many=True)
    next = serializers.CharField(allow_null=True)


class KeyItem(serializers.Serializer[Any]):
    """The key of the present launch."""

    key = serializers.CharField()


class SshItem(serializers.Serializer[Any]):
    """The way to an instance by SSH. ``host`` and ``port`` are the entrance's, where one signs in as ``person``."""

    host = serializers.CharField()
    port = serializers.IntegerField()
    person = serializers.CharField()
    gateway = serializers.CharField()
    alias = serializers.CharField()
    address = serializers.CharField()
    login = serializers.CharField()
    command = serializers.CharField()
    gateway_fingerprint = serializers.CharField()
    fingerprint = serializers.CharField()
    known_hosts = serializers.ListField(child=serializers.CharField())
    config = serializers.CharField()


class EndingItem(serializers.Serializer[Any]):
    """``none``, ``not_running``, ``running``, ``ended`` (with its exit code) or ``unknown``."""

    state = serializers.CharField()
    code = serializers.IntegerField(allow_null=True)


class TicketItem(serializers.Serializer[Any]):
    """POST ``ticket`` as a form field to ``url`` within a minute, once."""

    url = serializers.CharField()
    ticket = serializers.CharField()
    expires_at = serializers.DateTimeField()


_FILTERS = [
    OpenApiParameter(name, OpenApiTypes.STR, description=text)
    for name, text in (
        ("queue", "Name or id of a queue."),
        ("state", "One or more states, separated by commas."),
        ("owner", "User name of the owner."),
        ("text", "Part of the name of instance or image."),
        ("sort", "name, created, state, owner or queue; “-” in front for descending."),
        ("cursor", "From the page before."),
    )
]


class InstanceViewSet(HandingActions, LifetimeActions, PortActions):
    """Dev instances: make, start, stop, enter."""

    kind = "instance"
    rows = selectors.visible_with_mounts
    spec = selectors.LIST
    item = InstanceItem

    @extend_schema(parameters=_FILTERS, responses=InstancePage)
    def list(self, request: Request) -> Response:
        """The instances that you may know of."""
        return super().list(request)

    @extend_schema(responses=InstanceItem)
    def retrieve(self, request: Request, pk: str) -> Response:
        """One instance."""
        return super().retrieve(request, pk)

    @extend_schema(request=InstanceForm, responses={201: InstanceItem})
    def create(self, request: Request) -> Response:
        """Make an instance and start it. Refused before anything is made when the queue has no room (409)."""
        wanted = self.read(InstanceForm, request)
        more = api_options.taken_out(wanted)
        again = self.new_id(request) if "Idempotency-Key" in request.headers else None
        made = keeping.create(actor=self.actor, id=again, more=more, **wanted)
        if made.owner_id == request.user.pk:
            made.owner = request.user
        return self.answer(made, code=status.HTTP_201_CREATED)

    @extend_schema(
        request=ChangeForm,
        parameters=[DRY_RUN],
        responses=PolymorphicProxySerializer(
            component_name="InstanceOrPlan", serializers=[InstanceItem, PlanItem], resource_type_field_name=None
        ),
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change size, image, volumes, variables, script, shared memory or time zone; of one that runs say ``when``.

        With ``?dry_run=true`` nothing is changed, and the answer is what would be.
        """
        instance, asked = self.find(pk), ask(self.read(ChangeForm, request))
        if is_dry_run(request):
            return Response(plan_item(changing.preview(actor=self.actor, instance=instance, wishes=asked.wishes)))
        changing.change(
            actor=self.actor, instance=instance, wishes=asked.wishes, when=asked.when, revision=asked.revision
        )
        return self.answer(self.find(pk))

    @extend_schema(responses={202: InstanceItem})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete it. Its home and other volumes stay."""
        gone = services.delete(actor=self.actor, instance=self.find(pk, joins=("queue",)))
        return self.answer(gone, code=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: InstanceItem})
    @action(detail=True, methods=["post"])
    def start(self, request: Request, pk: str) -> Response:
        """Start it with a new key."""
        row = services.start(actor=self.actor, instance=self.find(pk, joins=("queue",)))
        return self.answer(row, code=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: InstanceItem})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str) -> Response:
        """Stop it; the key is dead at once, the home stays."""
        row = services.stop(actor=self.actor, instance=self.find(pk, joins=("queue",)))
        return self.answer(row, code=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: InstanceItem})
    @action(detail=True, methods=["post"])
    def restart(self, request: Request, pk: str) -> Response:
        """Stop it and start it again with a new key."""
        row = services.restart(actor=self.actor, instance=self.find(pk, joins=("queue",)))
        return self.answer(row, code=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: InstanceItem})
    @action(detail=True, methods=["post"], url_path="rotate-key", url_name="rotate-key")
    def rotate_key(self, request: Request, pk: str) -> Response:
        """Give it another key while it runs on; ``key_on_its_way`` is false when the old one is dead."""
        rotating.rotate_key(actor=self.actor, instance=self.find(pk))
        return self.answer(self.find(pk), code=status.HTTP_202_ACCEPTED)

    @extend_schema(responses=KeyItem)
    @action(detail=True, methods=["get"])
    def key(self, request: Request, pk: str) -> Response:
        """The key, for the owner alone; audited."""
        key = entering.reveal_key(actor=self.actor, instance=self.find(pk))
        return Response({"key": key.reveal()}, headers=NO_STORE)

    @extend_schema(request=None, responses=TicketItem)
    @action(detail=True, methods=["post"])
    def ticket(self, request: Request, pk: str) -> Response:
        """A one-time entrance for a browser, for the owner alone; audited."""
        entrance = entering.ticket(actor=self.actor, instance=self.find(pk))
        return Response(TicketItem(entrance).data, headers=NO_STORE)

    @extend_schema(responses=SshItem)
    @action(detail=True, methods=["get"])
    def ssh(self, request: Request, pk: str) -> Response:
        """How its owner gets there by SSH: addresses, host keys, a part of ~/.ssh/config."""
        return Response(SshItem(ssh.require_way(self.actor, self.find(pk))).data)

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    @action(detail=True, methods=["get"])
    def log(self, request: Request, pk: str) -> HttpResponse:
        """The end of its log as text, or nothing; the header ``Log-Note`` says why there is none."""
        tail = startlog.read(self.find(pk))
        headers = {**NO_STORE, **({"Log-Note": quote(tail.why)} if tail.why else {})}
        return HttpResponse(tail.lines, content_type="text/plain; charset=utf-8", headers=headers)

    @extend_schema(responses=EndingItem)
    @action(detail=True, methods=["get"], url_path="start-script", url_name="start-script")
    def start_script(self, request: Request, pk: str) -> Response:
        """How its start-up script ended; its owner asks."""
        instance = self.find(pk)
        entering.require_owner(self.actor, instance)
        return Response(EndingItem(startup.look(instance)).data)

    @extend_schema(request=ForecastForm, responses=ForecastItem)
    @action(detail=False, methods=["post"], url_path="will-it-run")
    def will_it_run(self, request: Request) -> Response:
        """Whether this size would run in this queue: now, queued or never, and the change that fits."""
        wanted = self.read(ForecastForm, request)
        answer = forecast.will_it_run(
            actor=self.actor,
            queue=choices.queue(self.actor, wanted["queue"]),
            size=choices.size(self.actor, wanted["size"]),
        )
        return Response(answer.as_dict())
