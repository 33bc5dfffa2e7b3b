"""What a person sets about the pages themselves: language, theme, and the queue that the switcher remembers."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import check_for_language
from django.views import View

from apps.core import nav
from apps.core.context import QUEUE_COOKIE, THEME_COOKIE, THEMES
from apps.core.pages import PortalPage

YEAR_S = 365 * 24 * 3600


def put_language(response: HttpResponse, code: str) -> None:
    """Answer in this language from now on; Django's own middleware reads the cookie."""
    _put(response, settings.LANGUAGE_COOKIE_NAME, code)


def _put(response: HttpResponse, name: str, value: str) -> None:
    response.set_cookie(name, value, max_age=YEAR_S, samesite="Lax", path="/")


def _back(request: HttpRequest) -> str:
    """Where the form was; never another site."""
    target = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(target, allowed_hosts=None) and target.startswith("/")
    return target if safe else "/"


def _store(request: HttpRequest, field: str, value: str) -> None:
    user: Any = request.user
    if user.is_authenticated and getattr(user, field) != value:
        setattr(user, field, value)
        user.save(update_fields=[field])


class Language(View):
    """Choose the language; it is kept with the person and in the browser."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Back to where the person was, in the other language."""
        response = HttpResponseRedirect(_back(request))
        code = request.POST.get("language", "")
        if code in dict(settings.LANGUAGES) and check_for_language(code):
            _store(request, "language", code)
            put_language(response, code)
        return response


class Theme(View):
    """Choose light, dark, or what the system says."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Back to where the person was."""
        response = HttpResponseRedirect(_back(request))
        theme = request.POST.get("theme", "")
        if theme in THEMES:
            _store(request, "theme", theme)
            _put(response, THEME_COOKIE, theme)
        return response


class ChooseQueue(PortalPage):
    """Remember a queue: lists opened from the rail show it alone, forms propose it."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Back to where the person was, filtered if that list knows queues."""
        queue = request.POST.get("queue", "")[:63]
        parts = urlsplit(_back(request))
        query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("queue", "cursor")]
        scoped = any(link.entry.scoped and link.active for link in self._links(parts.path))
        if queue and scoped:
            query.append(("queue", queue))
        response = HttpResponseRedirect(urlunsplit(("", "", parts.path, urlencode(query), "")))
        if queue:
            _put(response, QUEUE_COOKIE, queue)
        else:
            response.delete_cookie(QUEUE_COOKIE, path="/", samesite="Lax")
        return response

    def _links(self, path: str) -> list[nav.Link]:
        links = nav.links(self.actor, path=path, section="", queue="")
        return [link for link in links if link.url == path]


class Queues(PortalPage):
    """The lines of the switcher, fetched when it is opened, so that no other page asks for them."""

    def get(self, request: HttpRequest) -> HttpResponse:
        """The fragment."""
        context = {"choices": nav.queues(self.actor), "chosen": request.COOKIES.get(QUEUE_COOKIE, "")}
        return render(request, "core/queue_choices.html", context)
