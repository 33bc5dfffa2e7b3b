"""Forms for images and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.catalog.models import Architecture, Image, Purpose
from apps.core.fields import BytesField, CpuField

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class LinesField(forms.CharField):
    """One entry a line; the value is a list without the empty ones."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("widget", forms.Textarea(attrs={"rows": 3, **_PLAIN}))
        super().__init__(**kwargs)

    def prepare_value(self, value: Any) -> Any:
        """A list as lines; what was typed stays."""
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        return [line.strip() for line in (super().to_python(value) or "").splitlines() if line.strip()]


class ImageForm(forms.Form):
    """An image of the catalogue."""

    more = ("version", "cuda", "architecture", "prepared", "position", "hidden", "teams", "retired", "replaced_by")

    name = forms.CharField(label=gettext_lazy("Name"), widget=forms.TextInput(attrs=_PLAIN))
    reference = forms.CharField(
        label=gettext_lazy("Reference"),
        help_text=gettext_lazy(
            "As a registry knows it: team/name:tag, or with the registry's host in front. With @sha256:… behind it, it "
            "stays the same for ever."
        ),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    purpose = forms.ChoiceField(label=gettext_lazy("Purpose"), choices=Purpose.choices)
    description = forms.CharField(label=gettext_lazy("Description"), required=False, max_length=300)
    version = forms.CharField(
        label=gettext_lazy("Version"),
        required=False,
        max_length=40,
        help_text=gettext_lazy("What people look for, for example PyTorch 2.5."),
        widget=forms.TextInput(attrs=_PLAIN),
    )
    cuda = forms.CharField(
        label=gettext_lazy("CUDA"),
        required=False,
        max_length=10,
        help_text=gettext_lazy("Its version, for an image made for GPUs; whoever chooses a size without is told."),
        widget=forms.TextInput(attrs={"placeholder": "12.4", **_PLAIN}),
    )
    architecture = forms.ChoiceField(
        label=gettext_lazy("Architecture"),
        required=False,
        choices=Architecture.choices,
        help_text=gettext_lazy("An image for one kind of processor is started on nodes of that kind alone."),
    )
    prepared = forms.BooleanField(
        label=gettext_lazy("Made for the portal"),
        required=False,
        initial=True,
        help_text=gettext_lazy(
            "It has the portal's entrypoint, as mlportal/jupyter and what is built on it. Into any other image for dev "
            "instances the portal's tools are put at each start."
        ),
    )
    position = forms.IntegerField(label=gettext_lazy("Place in the list"), initial=100, min_value=0)
    hidden = forms.BooleanField(
        label=gettext_lazy("Hidden"),
        required=False,
        help_text=gettext_lazy("Offered to the teams below alone; without any, to nobody."),
    )
    teams = LinesField(
        label=gettext_lazy("Teams that see it"), required=False, help_text=gettext_lazy("One team a line.")
    )
    retired = forms.BooleanField(
        label=gettext_lazy("Retired"),
        required=False,
        help_text=gettext_lazy("What uses it runs on; nothing new can choose it."),
    )
    replaced_by = forms.ChoiceField(
        label=gettext_lazy("Use instead"),
        required=False,
        help_text=gettext_lazy("Whoever asks for the retired image is led to this one."),
    )

    def __init__(self, *args: Any, images: Sequence[Image], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["replaced_by"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("none")), *((str(image.pk), image.name) for image in images)]


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
