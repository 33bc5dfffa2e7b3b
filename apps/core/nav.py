"""What the rail and the queue switcher show. Apps add to it in ``ready()``; core names no app.

An entry whose address does not exist is left out, so a portal without one of the apps stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from apps.core.actors import Actor

Text = Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A place in the rail.

    ``section`` is the ``section`` of the pages below it. ``scoped`` lists take the remembered queue as a
    filter. ``bottom`` entries stand in the bar of narrow screens; ``lower`` ones under the rail's line;
    ``admin`` ones are for platform administrators.
    """

    section: str
    label: Text
    icon: str
    url_name: str
    order: int
    scoped: bool = False
    bottom: bool = False
    lower: bool = False
    admin: bool = False


@dataclass(frozen=True, kw_only=True)
class Link:
    """An entry as it is drawn for one request."""

    entry: Entry
    url: str
    active: bool


@dataclass(frozen=True, kw_only=True)
class QueueChoice:
    """A line of the queue switcher."""

    name: str
    detail: str = ""


QueueFinder = Callable[[Actor], Sequence[QueueChoice]]
_entries: dict[str, Entry] = {}
_finders: list[QueueFinder] = []


def add(*entries: Entry) -> None:
    """Add places, or replace those of the same section."""
    _entries.update({entry.section: entry for entry in entries})


def register_queues(finder: QueueFinder) -> None:
    """The app that knows queues says which ones a person may choose."""
    _finders.append(finder)


def queues(actor: Actor) -> list[QueueChoice]:
    """The queues of the switcher."""
    return [choice for finder in _finders for choice in finder(actor)]


def links(actor: Actor, *, path: str, section: str, queue: str) -> list[Link]:
    """The rail for this person. The active entry is the page's section, else the one whose address fits best."""
    drawn: list[tuple[Entry, str]] = []
    for entry in sorted(_entries.values(), key=lambda entry: entry.order):
        if entry.admin and not actor.is_admin:
            continue
        try:
            drawn.append((entry, reverse(entry.url_name)))
        except NoReverseMatch:
            continue
    active = section if any(entry.section == section for entry, _url in drawn) else _nearest(drawn, path)
    return [
        Link(
            entry=entry,
            url=f"{url}?{urlencode({'queue': queue})}" if entry.scoped and queue else url,
            active=entry.section == active,
        )
        for entry, url in drawn
    ]


def _nearest(drawn: Sequence[tuple[Entry, str]], path: str) -> str:
    fitting = [(len(url), entry.section) for entry, url in drawn if url != "/" and path.startswith(url)]
    return max(fitting)[1] if fitting else ("home" if path == "/" else "")


add(
    Entry(
        section="home", label=pgettext_lazy("page", "Home"), icon="home", url_name="core:home", order=10, bottom=True
    ),
    Entry(
        section="instances",
        label=_("Instances"),
        icon="terminal-2",
        url_name="instances:list",
        order=20,
        scoped=True,
        bottom=True,
    ),
    Entry(
        section="flows", label=_("Flows"), icon="git-merge", url_name="flows:list", order=30, scoped=True, bottom=True
    ),
    Entry(
        section="runs", label=_("Runs"), icon="player-play", url_name="flows:runs", order=40, scoped=True, bottom=True
    ),
    Entry(section="volumes", label=_("Volumes"), icon="database", url_name="storage:volumes", order=50, scoped=True),
    Entry(section="queues", label=_("Queues"), icon="stack-2", url_name="tenants:queues", order=60),
    Entry(
        section="clusters",
        label=_("Fleet"),
        icon="server-2",
        url_name="clusters:list",
        order=110,
        lower=True,
        admin=True,
    ),
    Entry(section="teams", label=_("Teams"), icon="users-group", url_name="tenants:teams", order=120, lower=True),
    Entry(section="users", label=_("Users"), icon="user", url_name="tenants:users", order=130, lower=True, admin=True),
    Entry(section="images", label=_("Images"), icon="package", url_name="catalog:images", order=140, lower=True),
    Entry(section="sizes", label=_("Sizes"), icon="cpu", url_name="catalog:sizes", order=150, lower=True),
    Entry(section="audit", label=_("Audit"), icon="history", url_name="core:audit", order=160, lower=True),
)
