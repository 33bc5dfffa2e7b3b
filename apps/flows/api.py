"""REST for flows, runs and attempts."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.clusters.events import Row
from apps.clusters.events_api import EventfulViewSet
from apps.core.errors import Invalid
from apps.flows import forecast, logs, selectors, services, silence
from apps.flows.api_items import (
    AttemptItem,
    AttemptPage,
    FlowForm,
    FlowItem,
    FlowPage,
    NewFlowItem,
    NextFiresForm,
    NextFiresItem,
    RunForm,
    RunItem,
    RunPage,
    SecretItem,
)
from apps.flows.models import Attempt, Flow, Run, Trigger
from apps.tenants import access

NO_STORE = {"Cache-Control": "no-store"}


def _filters(**texts: str) -> list[OpenApiParameter]:
    common = {"sort": "“-” in front for descending.", "cursor": "From the page before.", "limit": "1 to 200."}
    rows = {**texts, **common}
    return [OpenApiParameter(name, OpenApiTypes.STR, description=text) for name, text in rows.items()]


IDEMPOTENCY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="A repeat with the same key makes nothing new.",
)


class FlowViewSet(EventfulViewSet):
    """Flows: save, run, pause."""

    kind = "flow"
    rows = selectors.flows
    spec = selectors.FLOW_LIST
    followed_with = {"flow:run": "pk"}
    item = FlowItem

    def events_of(self, obj: Flow) -> list[Row]:
        """Those of its latest runs."""
        return selectors.events_of_flow(self.actor, obj)

    def context(self) -> dict[str, Any]:
        """With what the actor may act on."""
        return {**super().context(), "acting": access.Acting(self.actor)}

    @extend_schema(
        parameters=_filters(queue="Name or id.", state="active, paused.", owner="User name.", name="The exact name."),
        responses=FlowPage,
    )
    def list(self, request: Request) -> Response:
        """The living flows that you may know of."""
        return super().list(request)

    @extend_schema(responses=FlowItem)
    def retrieve(self, request: Request, pk: str) -> Response:
        """One flow."""
        return super().retrieve(request, pk)

    @extend_schema(request=FlowForm, responses={201: NewFlowItem}, parameters=[IDEMPOTENCY])
    def create(self, request: Request) -> Response:
        """Save a new flow. Every fault of the document is told at once."""
        pk = self.new_id(request)
        known = Flow.objects.for_actor(self.actor).filter(pk=pk).exists()
        services.create_flow(actor=self.actor, document=request.data, flow_id=pk)
        context = {**self.context(), "is_new": not known}
        data = NewFlowItem(self.find(pk), context=context).data
        return Response(data, status=status.HTTP_201_CREATED, headers=NO_STORE)

    @extend_schema(request=FlowForm, responses=FlowItem)
    def update(self, request: Request, pk: str) -> Response:
        """Save the next version; runs that were started keep theirs."""
        services.update_flow(actor=self.actor, flow=self.find(pk), document=request.data)
        return self.answer(self.find(pk))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete it: nothing fires any more, what runs is cancelled, past runs stay readable."""
        services.delete_flow(actor=self.actor, flow=self.find(pk))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=RunForm, responses={201: RunItem}, parameters=[IDEMPOTENCY])
    @action(detail=True, methods=["post"])
    def run(self, request: Request, pk: str) -> Response:
        """Start a run now. With ``Idempotency-Key`` a repeat answers the first run."""
        flow = self.find(pk)
        wanted = self.read(RunForm, request)
        key = request.headers.get("Idempotency-Key")
        run_id = services.run_id_for(self.actor, flow, key)
        made = services.run_now(
            actor=self.actor,
            flow=flow,
            parameters=wanted.get("parameters"),
            run_id=run_id,
            trigger=Trigger.API,
        )
        run = selectors.runs(self.actor).get(pk=made.pk)
        data = RunItem(run, context={**self.context(), "kind": "run"}).data
        return Response(data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=FlowItem)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """No schedule of it fires until it is resumed."""
        services.set_paused(actor=self.actor, flow=self.find(pk), paused=True)
        return self.answer(self.find(pk))

    @extend_schema(request=None, responses=FlowItem)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Its schedules fire again from now on."""
        services.set_paused(actor=self.actor, flow=self.find(pk), paused=False)
        return self.answer(self.find(pk))

    @extend_schema(request=None, responses=SecretItem)
    @action(detail=True, methods=["post"], url_path="rotate-secret")
    def rotate_secret(self, request: Request, pk: str) -> Response:
        """A new secret for its webhooks, shown this once."""
        secret = services.rotate_secret(actor=self.actor, flow=self.find(pk))
        return Response({"webhook_secret": secret}, headers=NO_STORE)

    @extend_schema(request=NextFiresForm, responses=NextFiresItem)
    @action(detail=False, methods=["post"], url_path="next-fires")
    def next_fires(self, request: Request) -> Response:
        """When a schedule would fire, before anything is saved."""
        wanted = self.read(NextFiresForm, request)
        found = forecast.fires_of(wanted["cron"], wanted["timezone"], timezone.now())
        return Response({"next_fires": [moment.isoformat() for moment in found]})


class RunViewSet(EventfulViewSet):
    """Runs: look, cancel, run again."""

    kind = "run"
    rows = selectors.runs
    spec = selectors.RUN_LIST
    followed_with = {"flow:run": "flow_id"}
    item = RunItem

    def events_of(self, obj: Run) -> list[Row]:
        """Those of its attempts."""
        return selectors.events_of_run(selectors.attempts(self.actor).filter(run=obj))

    @extend_schema(
        parameters=_filters(
            flow="Name or id.", queue="Name or id.", state="One or more, by commas.", trigger="schedule …"
        ),
        responses=RunPage,
    )
    def list(self, request: Request) -> Response:
        """The runs that you may know of, the newest first."""
        return super().list(request)

    @extend_schema(responses=RunItem)
    def retrieve(self, request: Request, pk: str) -> Response:
        """One run."""
        return super().retrieve(request, pk)

    @extend_schema(request=None, responses={202: RunItem})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End it; it is cancelled once its pod is gone."""
        services.cancel(actor=self.actor, run=self.find(pk))
        return self.answer(self.find(pk), code=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={201: RunItem}, parameters=[IDEMPOTENCY])
    @action(detail=True, methods=["post"])
    def rerun(self, request: Request, pk: str) -> Response:
        """The same version with the same parameters, as a new run."""
        made = services.rerun(actor=self.actor, run=self.find(pk), run_id=self.new_id(request))
        return self.answer(self.find(made.pk), code=status.HTTP_201_CREATED)


class AttemptViewSet(EventfulViewSet):
    """Attempts and their logs."""

    kind = "attempt"
    rows = selectors.attempts
    spec = selectors.ATTEMPT_LIST
    followed_with = {"flow:run": "run__flow_id"}
    item = AttemptItem

    @extend_schema(parameters=_filters(run="Id of a run.", state="One or more, by commas."), responses=AttemptPage)
    def list(self, request: Request) -> Response:
        """The attempts that you may know of."""
        return super().list(request)

    @extend_schema(responses=AttemptItem)
    def retrieve(self, request: Request, pk: str) -> Response:
        """One attempt."""
        return super().retrieve(request, pk)

    @extend_schema(request=None, responses={202: AttemptItem})
    @action(detail=True, methods=["post"], url_path="give-up")
    def give_up(self, request: Request, pk: str) -> Response:
        """End it as lost though its end was never seen: its node is silent. For administrators of the team.

        Refused with ``node_not_silent`` while its end can still be seen.
        """
        silence.give_up(actor=self.actor, attempt=self.find(pk))
        return self.answer(self.find(pk), code=status.HTTP_202_ACCEPTED)

    @extend_schema(
        parameters=[OpenApiParameter("offset", OpenApiTypes.INT64, description="The byte to begin with.")],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    @action(detail=True, methods=["get"])
    def log(self, request: Request, pk: str) -> HttpResponse:
        """The log from a byte on, as it was written.

        ``Next-Offset`` is where to go on, ``Complete`` is ``true`` when nothing will follow.
        """
        attempt: Attempt = self.find(pk)
        piece = logs.read(attempt, offset_of(request.query_params.get("offset")))
        response = HttpResponse(piece.data, content_type="text/plain; charset=utf-8")
        response["Next-Offset"] = str(piece.next)
        response["Complete"] = "true" if piece.complete else "false"
        response["Cache-Control"] = "no-store"
        response["X-Content-Type-Options"] = "nosniff"
        return response


def offset_of(text: str | None) -> int:
    """A byte offset from a query. Raises ``Invalid``."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise Invalid(
            _("The offset must be a number from 0."), code="offset_invalid", errors={"offset": _("not a number")}
        )
    return int(text)
