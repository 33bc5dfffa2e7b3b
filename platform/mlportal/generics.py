"""Django classes that type checkers know as generic, made subscriptable at run time: `TextField[Any, Any]`."""

from __future__ import annotations

from typing import Any

from django.db.models import Field
from django.forms.forms import BaseForm
from django.views.generic.base import View


def _itself(cls: type, _arguments: Any) -> type:
    return cls


def allow_type_arguments() -> None:
    """Type arguments are for the checker alone; at run time the class stays what it is."""
    generic: Any
    for generic in (Field, BaseForm, View):
        generic.__class_getitem__ = classmethod(_itself)
