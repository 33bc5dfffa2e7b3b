"""The shape of every REST endpoint: one item form, one list form, one error form."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db.models import Q, QuerySet
from django.http import Http404
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_serializer, extend_schema_view
from rest_framework import exceptions, serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.settings import api_settings
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from apps.core import listing, troubles
from apps.core.actors import Actor
from apps.core.errors import Forbidden, Invalid, NotFound, PortalError
from apps.core.listing import ListSpec
from apps.core.models import AuditEntry, Trouble

log = logging.getLogger(__name__)
PROBLEM_JSON = "application/problem+json"
READS = frozenset({"list", "retrieve"})
LOOKS = READS | {"log"}
NEXT_STEPS = {
    "parse_error": _lazy("Send one JSON object, in UTF-8."),
    "unsupported_media_type": _lazy("Send JSON, with the header “Content-Type: application/json”."),
    "not_acceptable": _lazy("Leave the header “Accept” out, or ask for application/json."),
    "method_not_allowed": _lazy("The document at /api/v1/openapi.json says what can be done at each address."),
    "permission_denied": _lazy("Reload the page and try again; programs send a token."),
}
"""What to do about what the framework refuses by itself."""
IDEMPOTENCY_SPACE = uuid.UUID("6f3c2f6e-0d8b-4c55-9d55-2b8f7f9b9c10")


def problem_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's exception handler: everything expected becomes problem+json with a code and a next step."""
    problem = _as_portal_error(error) or troubles.of(error)
    if problem is None:
        # A fault of ours. The log gets all of it, a program at the other end the same form as for every error.
        log.error("%s failed", context["request"].path, exc_info=error)
        problem = PortalError(
            _("The portal made a mistake; it is in its log."),
            code="internal",
            status=500,
            next=_("Try again; if it stays, tell an administrator when it happened and what you sent."),
        )
    response = Response(problem.as_problem(), status=problem.status, content_type=PROBLEM_JSON)
    if problem.status == status.HTTP_401_UNAUTHORIZED:
        response["WWW-Authenticate"] = 'Bearer realm="mlportal"'
    wait_s = getattr(error, "wait", None)  # set by DRF's Throttled
    if wait_s:
        response["Retry-After"] = str(int(wait_s) + 1)
    return response


def _as_portal_error(error: Exception) -> PortalError | None:
    if isinstance(error, PortalError):
        return error
    if isinstance(error, Http404):
        return NotFound()
    if isinstance(error, PermissionDenied):
        return PortalError(_("You may not do this."), code="forbidden", status=403)
    if isinstance(error, RequestDataTooBig):
        return PortalError(
            _("What was sent is larger than anything that this address takes."),
            code="too_large",
            status=413,
            next=_("Send less; the document at /api/v1/openapi.json says what belongs into it."),
        )
    if isinstance(error, exceptions.ValidationError):
        return Invalid(
            _("Some fields are not valid."),
            next=_("Correct the fields named in “errors” and send the request again."),
            errors=flatten(error.detail),
        )
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        return PortalError(
            str(error.detail),
            code="not_authenticated",
            status=401,
            next=_("Send a token: “Authorization: Bearer …”. Make one under Account or by POST /api/v1/tokens."),
        )
    if isinstance(error, exceptions.APIException):
        code = error.get_codes() if isinstance(error.get_codes(), str) else "invalid"
        return PortalError(
            str(error.detail), code=str(code), status=error.status_code, next=NEXT_STEPS.get(str(code), "")
        )
    return None


def flatten(detail: Any, prefix: str = "") -> dict[str, str]:
    """DRF's nested error lists as ``field.path -> sentence``."""
    if isinstance(detail, Mapping):
        found: dict[str, str] = {}
        for name, inner in detail.items():
            parts = [prefix, "" if name == api_settings.NON_FIELD_ERRORS_KEY else str(name)]
            found |= flatten(inner, ".".join(filter(None, parts)))
        return found
    if isinstance(detail, Sequence) and not isinstance(detail, str):
        if any(isinstance(entry, Mapping) for entry in detail):
            found = {}
            for position, entry in enumerate(detail):
                found |= flatten(entry, f"{prefix}.{position}" if prefix else str(position))
            return found
        return {prefix or "": " ".join(str(entry) for entry in detail)} if detail else {}
    return {prefix or "": str(detail)}


@lru_cache(maxsize=256)
def _around_id(view: str) -> tuple[str, str]:
    """The path of a route with an id, before and after the id: items name thousands, and each costs the same search."""
    before, _id, after = reverse(view, args=[uuid.UUID(int=0)]).partition(str(uuid.UUID(int=0)))
    return before, after


class ReasonItem(serializers.Serializer[Any]):
    """Why an object is as it is."""

    code = serializers.CharField()
    sentence = serializers.CharField()
    evidence = serializers.ListField(child=serializers.CharField())
    next = serializers.CharField()


class Item(serializers.Serializer[Any]):
    """What every object answers; apps add their own fields."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    created_at = serializers.DateTimeField()
    links = serializers.SerializerMethodField()

    def get_links(self, obj: Any) -> dict[str, str]:
        """``self`` (API) and ``page`` (browser); apps extend it."""
        links = {"self": self.address("detail", obj.pk)}
        if hasattr(obj, "get_absolute_url"):
            links["page"] = self.origin + obj.get_absolute_url()
        return links

    def address(self, name: str, pk: uuid.UUID) -> str:
        """The whole address of what can be asked of an object of this kind (``detail``, ``start`` ...)."""
        before, after = _around_id(f"api:{self.context['kind']}-{name}")
        return f"{self.origin}{before}{pk}{after}"

    @property
    def origin(self) -> str:
        """Scheme, host and port by which this request came; found out once for all items of an answer."""
        context = cast("dict[str, Any]", self.context)
        if "origin" not in context:
            context["origin"] = context["request"].build_absolute_uri("/")[:-1]
        return str(context["origin"])


class StatefulItem(Item):
    """An item with a state and a reason."""

    state = serializers.CharField()
    reason = serializers.SerializerMethodField()

    def get_reason(self, obj: Any) -> dict[str, Any] | None:
        """``code``, ``sentence``, ``evidence`` and ``next``, or null."""
        return obj.reason.as_dict() if obj.reason else None


class PortalViewSet(ViewSet):
    """List and detail of one kind; subclasses add actions that call services.

    ``rows(actor)`` gives the visible rows (a selector), ``spec`` what the list can do, ``item`` how a row
    looks. Every lookup goes through ``rows``, so a foreign id is a 404.
    """

    kind: ClassVar[str]
    rows: ClassVar[Any]
    spec: ClassVar[ListSpec] = ListSpec()
    item: ClassVar[type[serializers.Serializer[Any]]]
    followed_with: ClassVar[Mapping[str, str]] = {}
    """Scopes that let their token look at these objects too, each with the column of the id that it may name."""
    only: Q = Q()
    """What narrows the rows of this request beyond what the person may see."""
    lookup_value_regex = "[0-9a-fA-F-]{32,36}"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The OpenAPI document learns a subclass's items; a subclass that has its own list describes it itself."""
        super().__init_subclass__(**kwargs)
        if "item" in cls.__dict__:
            described = {"list": _describe_list(cls), "retrieve": extend_schema(responses=cls.item)}
            extend_schema_view(**{name: how for name, how in described.items() if name not in cls.__dict__})(cls)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """After authentication: a token with scopes may do what they name and nothing else."""
        super().initial(request, *args, **kwargs)
        self.check_scope(kwargs.get("pk"))

    def check_scope(self, pk: Any) -> None:
        """Raise ``Forbidden`` unless the actor's scopes, if any, allow this action (on this object)."""
        scopes = self.actor.scopes
        action = "read" if self.action in READS else (self.action or "").replace("_", "-")
        wanted = f"{self.kind}:{action}"
        if not scopes or wanted in scopes or (pk is not None and f"{wanted}:{pk}" in scopes):
            return
        followed = self._followed(scopes) if self.action in LOOKS else None
        if followed is None:
            raise Forbidden(
                _("This token may not do “%(scope)s”.") % {"scope": wanted},
                code="scope_missing",
                next=_("Use a token with this scope, or one without scopes."),
            )
        self.only = followed

    def _followed(self, scopes: Collection[str]) -> Q | None:
        """The rows that belong to what the token may do; None when there is no such scope."""
        found: Q | None = None
        for scope, column in self.followed_with.items():
            if scope in scopes:
                return Q()
            ids = [text.removeprefix(f"{scope}:") for text in scopes if text.startswith(f"{scope}:")]
            if ids:
                of_these = Q(**{f"{column}__in": ids})
                found = of_these if found is None else found | of_these
        return found

    def visible(self) -> QuerySet[Any]:
        """The rows that this request may know of."""
        rows: QuerySet[Any] = type(self).rows(self.actor)
        return rows.filter(self.only)

    @property
    def actor(self) -> Actor:
        """Who asks."""
        found: Actor = self.request.actor  # type: ignore[attr-defined]
        return found

    def find(self, pk: Any, *, joins: Sequence[str] | None = None) -> Any:
        """The visible row with this id. Raises ``NotFound``. (A view set's ``get`` is the HTTP method.)

        ``joins``: with these alone of what belongs to it, for a service that reads it again under its lock.
        """
        try:
            key = uuid.UUID(str(pk))
        except ValueError:
            raise NotFound() from None
        rows = self.visible()
        if joins is not None:
            rows = rows.select_related(None).select_related(*joins).prefetch_related(None)
        found = rows.filter(pk=key).first()
        if found is None:
            raise NotFound()
        return found

    def read(self, form: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
        """The validated body. Unknown fields are refused so that a typing error is not silently ignored."""
        data = request.data
        if not isinstance(data, Mapping):
            raise Invalid(
                _("The body must be a JSON object."), next=NEXT_STEPS["parse_error"], errors={"": _("not an object")}
            )
        serializer = form(data=data, context=self.context())
        unknown = {name: _("This field is not known.") for name in data if name not in serializer.fields}
        if unknown:
            raise Invalid(
                _("Some fields are not known."),
                code="unknown_field",
                next=_("Leave them out, or choose from: %(names)s.") % {"names": ", ".join(serializer.fields)},
                errors=unknown,
            )
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    def new_id(self, request: Request) -> uuid.UUID:
        """The id for a new object: derived from ``Idempotency-Key`` when given, so that a repeat finds the first."""
        return idempotent_id(self.actor, self.kind, request.headers.get("Idempotency-Key"))

    def context(self) -> dict[str, Any]:
        """What item serializers may need."""
        return {"request": self.request, "kind": self.kind, "actor": self.actor}

    def prepare(self, rows: Sequence[Any]) -> None:
        """Load what the items of these rows need beside them, in a fixed number of statements."""

    def answer(self, obj: Any, *, code: int = status.HTTP_200_OK) -> Response:
        """One item."""
        self.prepare([obj])
        return Response(self.item(obj, context=self.context()).data, status=code)

    def list(self, request: Request) -> Response:
        """A page: ``items`` and ``next``, the cursor of the page after it or null."""
        listing.refuse_unknown(self.spec, request.query_params)
        found = listing.page(self.visible(), self.spec, request.query_params)
        self.prepare(found.items)
        items = self.item(found.items, many=True, context=self.context()).data
        return Response({"items": items, "next": found.next})

    def retrieve(self, request: Request, pk: str) -> Response:
        """One item by id."""
        return self.answer(self.find(pk))


class Missing(APIView):
    """Every address below ``/api/`` that is none: told as the API tells everything."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    schema = None

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        """The same for each method."""
        self.args, self.kwargs, self.headers = args, kwargs, {}
        self.request = self.initialize_request(request, *args, **kwargs)
        answer = problem_handler(NotFound(), {"request": self.request})
        return self.finalize_response(self.request, answer)


def page_of(item: type[serializers.Serializer[Any]]) -> type[serializers.Serializer[Any]]:
    """The form of a list of these items."""
    fields = {"items": item(many=True), "next": serializers.CharField(allow_null=True), "__module__": __name__}
    made: type[serializers.Serializer[Any]] = type(f"{item.__name__}Page", (serializers.Serializer,), fields)
    return extend_schema_serializer(many=False)(made)


def _describe_list(view: type[PortalViewSet]) -> Any:
    names = [*view.spec.filters, "sort", "limit", "cursor"]
    parameters = [OpenApiParameter(name, OpenApiTypes.STR, required=False) for name in names]
    return extend_schema(parameters=parameters, responses=page_of(view.item))


def idempotent_id(actor: Actor, kind: str, key: str | None) -> uuid.UUID:
    """A random id, or one fixed by (actor, kind, key)."""
    if not key:
        return uuid.uuid4()
    return uuid.uuid5(IDEMPOTENCY_SPACE, f"{actor.user_id}:{kind}:{key}")


class AuditItem(serializers.Serializer[Any]):
    """One audit entry."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_name")
    verb = serializers.CharField()
    object_kind = serializers.CharField()
    object_id = serializers.UUIDField()
    object_name = serializers.CharField()
    detail = serializers.JSONField()


class AuditViewSet(PortalViewSet):
    """The audit log: all of it for administrators, one's own actions for others."""

    kind = "audit"
    rows = AuditEntry.objects.for_actor
    item = AuditItem
    spec = ListSpec(
        filters={
            "verb": lambda text: Q(verb__startswith=text),
            "actor": lambda text: Q(actor_name=text),
            "object": lambda text: Q(object_name=text),
        },
        sorts={"at": "at"},
        default_sort="-at",
    )
    lookup_value_regex = "[0-9]+"

    def find(self, pk: Any, *, joins: Sequence[str] | None = None) -> Any:
        """Audit entries have plain numbers."""
        found = self.visible().filter(pk=int(pk)).first()
        if found is None:
            raise NotFound()
        return found


class TroubleItem(serializers.Serializer[Any]):
    """Something that lasts and needs an administrator."""

    id = serializers.UUIDField()
    code = serializers.CharField()
    subject = serializers.CharField()
    sentence = serializers.CharField(source="reason.sentence")
    next = serializers.CharField(source="reason.next")
    evidence = serializers.ListField(child=serializers.CharField())
    since = serializers.DateTimeField()
    seen_at = serializers.DateTimeField()


class TroubleViewSet(PortalViewSet):
    """What is wrong with the portal itself and lasts, for administrators; what is over is not listed any more."""

    kind = "trouble"
    rows = Trouble.objects.for_actor
    item = TroubleItem
    spec = ListSpec(filters={"code": lambda text: Q(code=text)}, sorts={"since": "since"}, default_sort="-since")
