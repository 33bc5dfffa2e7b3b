"""Forms for volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy, pgettext_lazy

from apps.core.fields import BytesField
from apps.tenants.models import Queue


class VolumeForm(forms.Form):
    """A new data volume."""

    name = forms.CharField(
        label=gettext_lazy("Name"), widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )
    queue = forms.ChoiceField(label=gettext_lazy("Queue"))
    size_bytes = BytesField(label=pgettext_lazy("volume", "Size"))

    def __init__(self, *args: Any, queues: Sequence[Queue], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["queue"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(str(queue.pk), queue.name) for queue in queues]


class ExpandForm(forms.Form):
    """Another size."""

    size_bytes = BytesField(label=pgettext_lazy("volume", "Size"))
