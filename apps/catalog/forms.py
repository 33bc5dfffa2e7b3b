"""Forms for images and sizes."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy

from apps.catalog.models import Purpose
from apps.core.fields import BytesField, CpuField

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class ImageForm(forms.Form):
    """An image of the catalogue."""

    more = ("position", "retired")

    name = forms.CharField(label=gettext_lazy("Name"), widget=forms.TextInput(attrs=_PLAIN))
    reference = forms.CharField(
        label=gettext_lazy("Reference"),
        help_text=gettext_lazy("As a registry knows it: team/name:tag, or with the registry's host in front."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    purpose = forms.ChoiceField(label=gettext_lazy("Purpose"), choices=Purpose.choices)
    description = forms.CharField(label=gettext_lazy("Description"), required=False, max_length=300)
    position = forms.IntegerField(label=gettext_lazy("Place in the list"), initial=100, min_value=0)
    retired = forms.BooleanField(
        label=gettext_lazy("Retired"),
        required=False,
        help_text=gettext_lazy("What uses it runs on; nothing new can choose it."),
    )


class SizeForm(forms.Form):
    """A size of the catalogue."""

    more = ("gpu_resource", "position", "retired")

    name = forms.CharField(label=gettext_lazy("Name"), widget=forms.TextInput(attrs=_PLAIN))
    cpu_millis = CpuField(label=gettext_lazy("CPU"))
    memory_bytes = BytesField(label=gettext_lazy("Memory"))
    gpus = forms.IntegerField(label=gettext_lazy("GPUs"), initial=0, min_value=0)
    gpu_resource = forms.CharField(
        label=gettext_lazy("GPU resource"),
        initial="nvidia.com/gpu",
        help_text=gettext_lazy("The name under which the cluster counts this model of GPU."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    position = forms.IntegerField(label=gettext_lazy("Place in the list"), initial=100, min_value=0)
    retired = forms.BooleanField(
        label=gettext_lazy("Retired"),
        required=False,
        help_text=gettext_lazy("What uses it runs on; nothing new can choose it."),
    )
