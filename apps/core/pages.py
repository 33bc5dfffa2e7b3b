"""The three shapes of every page: list, object, form; and the button that acts.

Apps subclass these with data (rows, spec, columns, tabs); the shapes' templates are ``templates/core/``.
A request by htmx gets the fragment alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.auth.mixins import LoginRequiredMixin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.functional import cached_property
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views import View

from apps.core import audit, listing
from apps.core.actors import Actor
from apps.core.errors import NotFound, PortalError
from apps.core.listing import ListSpec
from apps.core.states import StateTable

Text = Any
GATE_SECTION = "password"
"""The one page of a person whose first password was given by somebody else."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One value of a filter or a select."""

    value: str
    label: Text


@dataclass(frozen=True, kw_only=True)
class FilterField:
    """A filter of the bar: free text when ``choices`` is empty."""

    name: str
    label: Text
    choices: Sequence[Choice] = ()


def by_state(table: StateTable, states: Iterable[str]) -> FilterField:
    """The filter of a list by these states."""
    choices = [Choice(value=state, label=table.labels[state]) for state in states]
    return FilterField(name="state", label=gettext("State"), choices=choices)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: ``sort`` names the sort of the list's spec, ``narrow`` hides it at small widths when False."""

    label: Text
    sort: str = ""
    narrow: bool = True
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class Action:
    """A button. ``lost`` says what a destructive action takes away; it is asked before and needs a yes.

    ``post`` False makes it a link. ``enabled`` False shows it greyed with ``why``.
    """

    verb: str
    label: Text
    url: str
    icon: str = ""
    lost: Text = ""
    post: bool = True
    new_tab: bool = False
    enabled: bool = True
    why: Text = ""
    primary: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tab:
    """A tab of an object page; ``template`` is rendered with ``object`` and ``context(view, object)``."""

    slug: str
    label: Text
    template: str
    context: Callable[[Any, Any], Mapping[str, Any]] = lambda view, obj: {}


class PortalPage(LoginRequiredMixin, View):
    """A page for a signed-in person. Expected errors become a page with the sentence and the next step."""

    section: ClassVar[str] = ""
    styles: ClassVar[Sequence[str]] = ()
    """Static style sheets that this page needs besides the portal's."""
    scripts: ClassVar[Sequence[str]] = ()

    @property
    def actor(self) -> Actor:
        """Who looks."""
        found: Actor = self.request.actor  # type: ignore[attr-defined]
        return found

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if getattr(request.user, "must_change_password", False) and self.section != GATE_SECTION:
            return HttpResponseRedirect(reverse("core:password"))
        try:
            response: HttpResponse = super().dispatch(request, *args, **kwargs)  # type: ignore[assignment]
            return response
        except PortalError as error:
            return self.show_error(error)

    def show_error(self, error: PortalError) -> HttpResponse:
        """The error as a page, or as a toast fragment for htmx."""
        template = "core/error_fragment.html" if self.is_fragment else "core/error.html"
        response = render(
            self.request, template, {"error": error, "section": self.section, "view": self}, status=error.status
        )
        if self.is_fragment:
            response["HX-Retarget"] = "#toasts"
            response["HX-Reswap"] = "beforeend"
        return response

    @property
    def is_fragment(self) -> bool:
        """True when htmx asks (and not for a whole page)."""
        return self.request.headers.get("HX-Request") == "true" and "HX-Boosted" not in self.request.headers

    def show(self, template: str, context: Mapping[str, Any], *, status: int = 200) -> HttpResponse:
        """Render with what every page needs. A page and its fragments share an address but no cache entry."""
        response = render(self.request, template, {"view": self, "section": self.section, **context}, status=status)
        patch_vary_headers(response, ["HX-Request"])
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    def show_once(self, template: str, context: Mapping[str, Any]) -> HttpResponse:
        """The same for what nobody can see again (a password, a key, a secret): no cache keeps it."""
        response = self.show(template, context)
        response["Cache-Control"] = "no-store"
        return response


class ListPage(PortalPage):
    """A list: filter bar, sortable columns, live rows, cursor paging; an empty state that says what to do."""

    title: ClassVar[Text] = ""
    kind: ClassVar[str] = ""
    spec: ClassVar[ListSpec] = ListSpec()
    columns: ClassVar[Sequence[Column]] = ()
    row_template: ClassVar[str] = ""
    new_label: ClassVar[Text] = ""
    new_url: ClassVar[str] = ""
    empty_title: ClassVar[Text] = ""
    empty_text: ClassVar[Text] = ""
    empty_cli: ClassVar[str] = ""

    def rows(self) -> QuerySet[Any]:
        """The visible rows, with what the row template shows already joined."""
        raise TypeError(f"{type(self).__name__} gives no rows")

    def filters(self) -> Sequence[FilterField]:
        """The filter bar's fields; their names are those of ``spec.filters``."""
        return ()

    def may_make(self) -> bool:
        """Whether this person is offered to make another one (``new_label``, ``new_url``)."""
        return self.actor.is_admin

    def actions(self) -> Sequence[Action]:
        """Buttons at the top right; the first is the main one and also stands in the empty state."""
        if not self.new_url or not self.may_make():
            return ()
        address = reverse(self.new_url)
        return (Action(verb="create", label=self.new_label, url=address, icon="plus", post=False, primary=True),)

    def extra(self) -> Mapping[str, Any]:
        """More for the row template."""
        return {}

    def prepare(self, rows: Sequence[Any]) -> None:
        """Load what these rows show beside their own columns, in a fixed number of statements."""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """The list; for htmx only the table's body. ``?row=<id>`` answers that one row (live update)."""
        rows = self.rows()
        if one := request.GET.get("row"):
            found = rows.filter(pk=id_of(one)).first()
            if found is None:
                return HttpResponse("")
            self.prepare([found])
            return self.show(self.row_template, {"object": found, **self.extra()})
        page = listing.page(rows, self.spec, request.GET.dict())
        self.prepare(page.items)
        context = {"page": page, "filters": self.filters(), "actions": self.actions(), **self.extra()}
        return self.show("core/list_rows.html" if self.is_fragment else "core/list.html", context)


class ObjectPage(PortalPage):
    """An object: header, state chip, actions, reason banner, tabs. ``rows`` scopes the lookup: foreign is 404."""

    kind: ClassVar[str] = ""
    live_kinds: ClassVar[str] = ""
    """Kinds of other objects, with spaces between, of which any change redraws the tab."""
    tabs: ClassVar[Sequence[Tab]] = ()
    template: ClassVar[str] = "core/object.html"
    header_template: ClassVar[str] = "core/object_header.html"

    def rows(self) -> QuerySet[Any]:
        """The visible rows with joins."""
        raise TypeError(f"{type(self).__name__} gives no rows")

    def actions(self, obj: Any) -> Sequence[Action]:
        """Buttons; the primary one stands out, others go into the menu."""
        return ()

    def get(self, request: HttpRequest, pk: uuid.UUID, tab: str = "") -> HttpResponse:
        """The whole page; for htmx ``?part=header`` or ``?part=tab`` alone (live update)."""
        obj = find(self.rows(), pk)
        chosen = next((entry for entry in self.tabs if entry.slug == tab), None) if tab else self.tabs[0]
        if chosen is None:
            raise NotFound()
        part = request.GET.get("part", "")
        context: dict[str, Any] = {"object": obj, "tabs": self.tabs, "tab": chosen, "actions": self.actions(obj)}
        if part != "header":
            context |= chosen.context(self, obj)
        template = {"header": self.header_template, "tab": chosen.template}.get(part, self.template)
        return self.show(template, context)


class FormPage(PortalPage):
    """A form: one column, side panel, errors beside fields; nothing typed is ever lost.

    ``submit(data)`` calls the service and answers where to go. Its ``PortalError`` is shown in the form.
    """

    title: ClassVar[Text] = ""
    form: ClassVar[type[forms.Form]]
    template: ClassVar[str] = "core/form.html"
    submit_label: ClassVar[Text] = ""

    def initial(self) -> Mapping[str, Any]:
        """Proposed values."""
        return {}

    def form_kwargs(self) -> Mapping[str, Any]:
        """More arguments for the form class (choices by actor)."""
        return {}

    def submit(self, data: dict[str, Any]) -> str | HttpResponse:
        """Carry it out; the URL to show next, or a page of its own (`show_once`)."""
        raise TypeError(f"{type(self).__name__} does not submit")

    def extra(self) -> Mapping[str, Any]:
        """More for the template (side panel)."""
        return {}

    def check(self) -> None:
        """Raise ``NotFound`` or ``Forbidden`` before the form is shown, and before anything sent is read."""

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().setup(request, *args, **kwargs)
        self.kwargs = kwargs

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """The form with proposed values; ``once`` makes a double click harmless."""
        self.check()
        form = self.form(initial={**self.initial()}, **self.form_kwargs())
        return self.show_form(form, once=str(uuid.uuid4()))

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Validate, carry out, go on; or show what is wrong with all that was typed."""
        self.check()
        form = self.form(request.POST, **self.form_kwargs())
        once = request.POST.get("once", "")
        if form.is_valid():
            try:
                answer = self.submit({**form.cleaned_data, "id": id_of(once) or uuid.uuid4()})
                return HttpResponseRedirect(answer) if isinstance(answer, str) else answer
            except PortalError as error:
                self.put_errors(form, error)
                return self.show_form(form, once=once, error=error, status=error.status)
        return self.show_form(form, once=once, status=422)

    @staticmethod
    def put_errors(form: forms.Form, error: PortalError) -> None:
        """Beside the field where there is one; the sentence itself stands at the top."""
        for name, text in error.errors.items():
            if name in form.fields:
                form.add_error(name, str(text))

    def show_form(
        self, form: forms.Form, *, once: str, error: PortalError | None = None, status: int = 200
    ) -> HttpResponse:
        """Render the form with its panel."""
        return self.show(self.template, {"form": form, "once": once, "error": error, **self.extra()}, status=status)


class ObjectFormPage(FormPage):
    """A form of an object that exists: ``rows`` scopes the lookup, foreign is 404; ``allow`` says who may change it."""

    def rows(self) -> QuerySet[Any]:
        """The visible rows with joins."""
        raise TypeError(f"{type(self).__name__} gives no rows")

    def allow(self, obj: Any) -> None:
        """Raise ``Forbidden`` for whoever may see it and may not change it."""

    @cached_property
    def object(self) -> Any:
        """The object of the address. Raises ``NotFound``."""
        return find(self.rows(), self.kwargs["pk"])

    def check(self) -> None:
        self.allow(self.object)


class ActionPage(PortalPage):
    """A button's target: POST, act, go back to the object (or where ``act`` says)."""

    done: ClassVar[Text] = ""

    def rows(self) -> QuerySet[Any]:
        """The visible rows."""
        raise TypeError(f"{type(self).__name__} gives no rows")

    def act(self, obj: Any) -> str | None:
        """Carry it out; a URL, or None for the object's page."""
        raise TypeError(f"{type(self).__name__} does not act")

    def post(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Act; for htmx an HX-Redirect, else a redirect. An error becomes a message on the object's page."""
        obj = find(self.rows(), pk)
        try:
            target = self.act(obj)
        except PortalError as error:
            if self.is_fragment:
                return self.show_error(error)
            messages.error(request, f"{error.detail} {error.next}".strip())
            return HttpResponseRedirect(obj.get_absolute_url())
        if self.done:
            messages.success(request, str(self.done))
        target = target or obj.get_absolute_url()
        if self.is_fragment:
            return HttpResponse(status=204, headers={"HX-Redirect": target})
        return HttpResponseRedirect(target)


def find(rows: QuerySet[Any], pk: uuid.UUID) -> Any:
    """The visible row with this id. Raises ``NotFound``."""
    found = rows.filter(pk=pk).first()
    if found is None:
        raise NotFound()
    return found


def history_tab() -> Tab:
    """The tab that shows the object's audit entries."""
    return Tab(
        slug="history",
        label=_("History"),
        template="core/tab_history.html",
        context=lambda view, obj: {"entries": audit.history(obj)},
    )


def url(name: str, obj: Any) -> str:
    """Short for an object's own URL."""
    return reverse(name, args=[obj.pk])


def id_of(text: str) -> uuid.UUID | None:
    """The id that a query's or a form's field holds (``once``); None for what is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
