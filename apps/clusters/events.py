"""What the clusters report of an object, kept with its row: one way for every app.

The watch (or a look of a reconciler) gives notes, the row keeps the newest of them in plain words, a tab shows them.
A row with ``last_events`` is an `Eventful`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from apps.clusters.eventful import Eventful
from apps.clusters.watching import EventHandler
from apps.core import bulk, live
from apps.core.pages import Tab
from kubekit import names
from kubekit.events import EventNote, observe_event

Row = dict[str, Any]
"""A stored event: ``at`` (ISO), ``reason``, ``sentence``, ``message``, ``count``, ``warning``, ``object``."""
MOST = 20
MOST_SHOWN = 100
MESSAGE_CHARACTERS = 500
CHATTER_EVERY = timedelta(seconds=5)


def merge(known: Sequence[Mapping[str, Any]], notes: Sequence[EventNote]) -> list[Row]:
    """The newest `MOST` of both, newest first; a repeated event of the cluster replaces its earlier count.

    ``notes`` are in the order in which they came, which tells apart those of one second.
    """
    rows = {_key(row): dict(row) for row in reversed(known)}
    for note in notes:
        row = _row(note)
        rows.pop(_key(row), None)
        rows[_key(row)] = row
    return _newest_first(list(rows.values()))[:MOST]


def _newest_first(rows: Sequence[Row]) -> list[Row]:
    """Of rows in the order in which they came; most have no fractions of a second."""
    return sorted(rows, key=lambda row: str(row["at"]))[::-1]


def _row(note: EventNote) -> Row:
    return {
        "at": note.time.isoformat(),
        "reason": note.reason,
        "sentence": note.sentence,
        "message": note.message[:MESSAGE_CHARACTERS],
        "count": note.count,
        "warning": note.warning,
        "object": note.object_name,
    }


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """What tells one line from another; the progress of a pull is one line that changes."""
    return (row["object"], row["reason"], "" if row["reason"] == "Pulling" else row["message"])


def is_chatter(known: Sequence[Mapping[str, Any]], note: EventNote) -> bool:
    """The same once more within seconds: neither a write nor a redrawn page is worth it."""
    fresh = _row(note)
    for row in known:
        if all(row[name] == fresh[name] for name in ("object", "reason", "message")):
            before = parse_datetime(row["at"])
            return before is not None and note.time - before < CHATTER_EVERY
    return False


def keep(obj: Any, note: EventNote) -> bool:
    """Store an event with its row and redraw the pages that show it; False when it says nothing new."""
    if is_chatter(obj.last_events, note):
        return False
    with transaction.atomic():
        row: Any = type(obj).objects.as_system().select_for_update(of=("self",)).get(pk=obj.pk)
        merged = merge(row.last_events, (note,))
        if merged == row.last_events:
            return False
        row.last_events = obj.last_events = merged
        row.save(update_fields=["last_events", "updated_at"])
        live.announce(row)
    return True


def said_of(kind: str, told: Iterable[tuple[Mapping[str, Any], Mapping[str, str]]]) -> dict[UUID, list[EventNote]]:
    """What a watch told (`watching.on_events`) of objects labelled ``kind``, by their id, in order."""
    found: dict[UUID, list[EventNote]] = {}
    for raw, labels in told:
        pk = names.parse_id(labels.get(names.ID))
        if labels.get(names.KIND) == kind and pk is not None:
            found.setdefault(pk, []).append(observe_event(raw))
    return found


def keep_many(
    model: Any, told: Mapping[UUID, Sequence[EventNote]], wanted: Callable[[Any, EventNote], bool]
) -> list[tuple[Any, EventNote]]:
    """The same for many rows in two statements; the rows with each note that says something new of them.

    ``wanted(row, note)`` says whether the row still wants to hear of it; it is called while the row is locked.
    """
    kept: list[tuple[Any, EventNote]] = []
    changed: list[Any] = []
    with transaction.atomic():
        rows = model.objects.as_system().select_for_update(of=("self",)).select_related("queue")
        for row in rows.filter(pk__in=list(told)).order_by("pk"):
            before = row.last_events
            for note in told[row.pk]:
                if wanted(row, note) and not is_chatter(row.last_events, note):
                    merged = merge(row.last_events, (note,))
                    if merged != row.last_events:
                        row.last_events = merged
                        kept.append((row, note))
            if row.last_events != before:
                changed.append(row)
        if changed:
            bulk.write(model, changed, ["last_events"])
            live.announce_many(changed)
    return kept


def notes(rows: Iterable[Mapping[str, Any]]) -> tuple[EventNote, ...]:
    """Stored rows as the cluster told them, oldest first; whose UID they were about is not stored."""
    return tuple(
        EventNote(
            time=at,
            reason=row["reason"],
            sentence=row["sentence"],
            message=row["message"],
            count=row["count"],
            type="Warning" if row["warning"] else "Normal",
            object_kind="",
            object_name=row["object"],
            object_uid="",
        )
        for row in reversed(list(rows))
        if (at := parse_datetime(row["at"])) is not None
    )


def keeper(kind: str, find: Callable[[UUID, UUID], Eventful | None]) -> EventHandler:
    """A handler for `watching.on_event` that keeps what is said of objects labelled ``kind``.

    ``find(cluster id, object id)`` is the row that still wants to hear of it.
    """

    def came(cluster_id: UUID, raw: dict[str, Any], labels: Mapping[str, str]) -> None:
        if labels.get(names.KIND) != kind:
            return
        pk = names.parse_id(labels.get(names.ID))
        row = find(cluster_id, pk) if pk is not None else None
        if row is not None:
            keep(row, observe_event(raw))

    return came


# --- the tab ---------------------------------------------------------------------------------------------------------


def shown(rows: Iterable[Mapping[str, Any]], *, about: str = "", url: str = "") -> list[Row]:
    """Stored events for the tab: ``about`` names the page's object that they belong to, else the cluster's object."""
    return [
        {**row, "at": parse_datetime(row["at"]), "about": about or row.get("object", ""), "url": url} for row in rows
    ]


def newest(rows: Iterable[Row]) -> list[Row]:
    """Those of several objects together, newest first."""
    return _newest_first(list(rows)[::-1])[:MOST_SHOWN]


def _own(_view: Any, obj: Eventful) -> list[Row]:
    return shown(obj.last_events)


def tab(*, empty: Any, find: Callable[[Any, Any], list[Row]] = _own) -> Tab:
    """The Events tab: ``find(view, object)`` gives what `shown` made, ``empty`` the sentence when there is none."""
    return Tab(
        slug="events",
        label=_("Events"),
        template="clusters/tab_events.html",
        context=lambda view, obj: {"events": find(view, obj), "empty": empty},
    )
