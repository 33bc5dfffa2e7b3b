"""Pages of the base: home, audit, and the two addresses that programs ask whether the portal is well."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.core.exceptions import RequestDataTooBig
from django.db import DatabaseError, connection
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.template import loader
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _
from django.views import View

from apps.core import home, troubles, verbs, who
from apps.core.context import QUEUE_COOKIE
from apps.core.listing import ListSpec
from apps.core.models import AuditEntry
from apps.core.pages import Column, FilterField, ListPage, PortalPage
from apps.core.preferences import YEAR_S

SEEN_KEY = "home_seen_at"
STEPS_COOKIE = "mlportal-steps"
LONGEST_LOOK_BACK = timedelta(days=7)


class Home(PortalPage):
    """What is mine and alive, what failed since I last looked, room, what runs next; first steps for a new person."""

    section = "home"

    def get(self, request: HttpRequest) -> HttpResponse:
        """The page, or with ``?panel=`` one panel alone (live update)."""
        look = home.Look(queue=request.COOKIES.get(QUEUE_COOKIE, ""), since=self._since())
        steps = [] if request.COOKIES.get(STEPS_COOKIE) == "seen" else home.steps(self.actor)
        panels = home.draw(self.actor, look)
        if name := request.GET.get("panel"):
            found = next((one for one in panels if one.panel.name == name), None)
            if found is None:
                return HttpResponse("")
            return render(request, found.panel.template, {"panel": found.panel, **found.data})
        new = not all(step.done for step in steps)
        context = {
            "steps": steps if new else [],
            "offered": {step.url for step in steps if not step.done},
            "wide": [one for one in panels if not one.panel.side],
            "side": [one for one in panels if one.panel.side],
        }
        return self.show("core/home.html", context)

    def post(self, request: HttpRequest) -> HttpResponse:
        """The person has seen what failed, or needs the first steps no more (``steps`` in the form)."""
        response = HttpResponseRedirect(reverse("core:home"))
        if "steps" in request.POST:
            response.set_cookie(STEPS_COOKIE, "seen", max_age=YEAR_S, samesite="Lax")
        else:
            request.session[SEEN_KEY] = timezone.now().isoformat()
        return response

    def _since(self) -> datetime:
        stored = parse_datetime(self.request.session.get(SEEN_KEY, ""))
        earliest = timezone.now() - LONGEST_LOOK_BACK
        return max(stored, earliest) if stored else earliest


class Audit(ListPage):
    """Who did what, newest first. Administrators see all, others what they did themselves."""

    section = "audit"
    title = _("Audit")
    kind = "auditentry"
    spec = ListSpec(
        filters={
            "who": lambda text: Q(actor_name__icontains=text) | Q(actor_id=None, actor_name__in=who.stored(text)),
            "verb": verbs.matching,
            "kind": lambda text: Q(object_kind=text),
            "object": lambda text: Q(object_name__icontains=text),
        },
        sorts={"at": "at"},
        default_sort="-at",
    )
    columns = (
        Column(label=_("When"), sort="at"),
        Column(label=_("Who")),
        Column(label=_("What")),
        Column(label=_("On")),
        Column(label=_("Details"), narrow=False),
    )
    row_template = "core/audit_row.html"
    empty_title = _("Nothing has been done yet.")
    empty_text = _("Every change through pages, REST and the portal's own loops is written here and cannot be altered.")

    def rows(self) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.for_actor(self.actor)

    def filters(self) -> Sequence[FilterField]:
        return (
            FilterField(name="who", label=_("Who")),
            FilterField(name="verb", label=_("What")),
            FilterField(name="object", label=_("Name of the object")),
        )


class Alive(View):
    """The process answers."""

    def get(self, request: HttpRequest) -> JsonResponse:
        """Always 200."""
        return JsonResponse({"status": "ok"})


class Ready(View):
    """The portal can serve people: the database answers."""

    def get(self, request: HttpRequest) -> JsonResponse:
        """200, or 503 with what is missing."""
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except DatabaseError as error:
            return JsonResponse({"status": "unavailable", "database": type(error).__name__}, status=503)
        return JsonResponse({"status": "ok", "database": "ok"})


def unreadable(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The page for a request that nothing could be made of; one that is too large says so."""
    if not isinstance(exception, RequestDataTooBig):
        return HttpResponse(loader.render_to_string("400.html"), status=400)
    context = {
        "status": 413,
        "title": _("What was sent is larger than anything that a page takes."),
        "next": _("Go back and send less. A kubeconfig, for example, is at most 1 MiB."),
        "code": "too_large",
    }
    return HttpResponse(loader.render_to_string("503.html", context), status=413)


def fault(request: HttpRequest) -> HttpResponse:
    """The page behind every uncaught error. It asks the database nothing, which may be what is in trouble."""
    trouble = troubles.of(sys.exc_info()[1])
    if trouble is None:
        return HttpResponse(loader.render_to_string("500.html"), status=500)
    context = {"status": trouble.status, "title": trouble.detail, "next": trouble.next, "code": trouble.code}
    return HttpResponse(loader.render_to_string("503.html", context), status=trouble.status)
