"""The home page's panels: each app adds its own in ``ready()``, core draws them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch

from apps.core.actors import Actor

Context = Callable[[Actor, "Look"], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a panel may know of this visit: the remembered queue, and when the person looked before."""

    queue: str
    since: Any


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A part of the home page. ``context`` returns what ``template`` needs; its key ``empty`` True leaves it out.

    ``side`` panels stand in the narrow column. ``live`` names the kinds of objects whose change redraws it.
    """

    name: str
    template: str
    context: Context
    order: int
    side: bool = False
    live: str = ""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A panel with its data."""

    panel: Panel
    data: Mapping[str, Any]


Step = Callable[[Actor], "FirstStep | None"]


@dataclass(frozen=True, kw_only=True)
class FirstStep:
    """One of the steps that a new person sees; ``done`` ones are ticked."""

    title: Any
    text: Any
    url: str
    button: Any
    icon: str
    done: bool


_panels: dict[str, Panel] = {}
_steps: dict[int, Step] = {}


def register(panel: Panel) -> None:
    """Add a panel, or replace the one of the same name."""
    _panels[panel.name] = panel


def register_step(order: int, step: Step) -> None:
    """Add a first step; it is asked on each visit and may answer None when it does not concern this person."""
    _steps[order] = step


def draw(actor: Actor, look: Look) -> list[Drawn]:
    """The panels that have something to show, in order."""
    drawn = [
        Drawn(panel=panel, data=panel.context(actor, look))
        for panel in sorted(_panels.values(), key=lambda panel: panel.order)
    ]
    return [one for one in drawn if not one.data.get("empty")]


def steps(actor: Actor) -> list[FirstStep]:
    """The first steps of this person; all done means the person is not new any more.

    A step whose page does not exist is left out, as in the rail.
    """
    found: list[FirstStep] = []
    for _order, ask in sorted(_steps.items()):
        try:
            step = ask(actor)
        except NoReverseMatch:
            continue
        if step is not None:
            found.append(step)
    return found
