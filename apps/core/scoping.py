"""Managers that cannot forget whose rows they read.

``Model.objects`` answers ``for_actor(actor)`` for people and ``as_system()`` for the portal's own loops;
every other way to a queryset raises. A view that forgets the actor fails its first test instead of
leaking another team's rows.
"""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from django.db import models
from django.db.models import Q, QuerySet

from apps.core.actors import Actor

M = TypeVar("M", bound=models.Model)

NOTHING = Q(pk__in=[])
EVERYTHING = Q()


class ScopedManager(models.Manager[M], Generic[M]):
    """The only default manager of our models.

    The model gives ``visible_to(actor) -> Q`` as a class method; ``EVERYTHING`` and ``NOTHING`` are its
    two simple answers.
    """

    def for_actor(self, actor: Actor) -> QuerySet[M]:
        """The rows that this actor may know of."""
        return super().get_queryset().filter(self.model.visible_to(actor))  # type: ignore[attr-defined]

    def as_system(self) -> QuerySet[M]:
        """All rows, for control loops, migrations and bootstrap; never with a person's request in hand."""
        return super().get_queryset()

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self.model.__name__}.objects: say for_actor(actor) or as_system()")

    all = filter = exclude = get = first = last = count = exists = values = values_list = _refuse
    order_by = aggregate = annotate = update_or_create = get_or_create = select_related = _refuse
    select_for_update = in_bulk = none = prefetch_related = earliest = latest = iterator = _refuse
