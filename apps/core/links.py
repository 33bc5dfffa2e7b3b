"""From a kind and an id, as audit entries hold them, to a page: without loading the object."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.urls import NoReverseMatch


@lru_cache(maxsize=64)
def _model(kind: str) -> Any:
    return next((model for model in apps.get_models() if model._meta.model_name == kind), None)


def kind_name(kind: str) -> str:
    """What people call this kind, in their language."""
    model = _model(kind)
    return str(model._meta.verbose_name) if model is not None else kind


def address(kind: str, pk: Any) -> str:
    """The object's page, or nothing when it has none. Asks no database."""
    model = _model(kind)
    if model is None or not hasattr(model, "get_absolute_url"):
        return ""
    try:
        return str(model(pk=pk).get_absolute_url())
    except NoReverseMatch:
        return ""


def state_labels(kind: str) -> Mapping[str, Any]:
    """The words of this kind's states; empty when it has none."""
    table = getattr(_model(kind), "TABLE", None)
    return table.labels if table is not None else {}
