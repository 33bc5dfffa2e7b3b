"""The kinds of node that a flow can have. An executor registers here; the document and the reconciler ask here."""

from __future__ import annotations

from typing import Literal, overload

from apps.flows.executors.base import Executor
from apps.flows.executors.container import CONTAINER

_executors: dict[str, Executor] = {CONTAINER.name: CONTAINER}


def register(executor: Executor) -> None:
    """Add a kind of node. A second one of the same name is a fault in the program."""
    if executor.name in _executors:
        raise ValueError(f"there are two executors named {executor.name!r}")
    _executors[executor.name] = executor


@overload
def find(name: Literal["container"]) -> Executor: ...
@overload
def find(name: object) -> Executor | None: ...
def find(name: object) -> Executor | None:
    """The executor of this name, or None."""
    return _executors.get(name) if isinstance(name, str) else None


def names() -> list[str]:
    """All names, in order."""
    return sorted(_executors)
