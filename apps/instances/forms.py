"""The form of a new instance: image, size and queue are asked, the rest has defaults."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.catalog import facts
from apps.catalog.models import Image, Size
from apps.core import quantities
from apps.instances import option_forms
from apps.instances.lifetime import keeping
from apps.instances.option_forms import OptionFields
from apps.storage.models import Volume
from apps.tenants.models import Queue
from kubekit.specs import HOME_PATH


def size_label(size: Size) -> str:
    """``medium: 1 CPU, 2 GiB``, with the GPUs where it has some."""
    parts = [quantities.cpus(size.cpu_millis), quantities.size(size.memory_bytes)]
    if size.gpus:
        parts.append(_("%(count)d GPU") % {"count": size.gpus})
    return f"{size.name}: {', '.join(parts)}"


def no_own_image(queues: list[Queue]) -> str:
    """Why nobody can name an image of their own in any of these queues; empty when it is possible in one of them."""
    real = [queue for queue in queues if not queue.cluster.embedded]
    if any(queue.team.own_images for queue in real):
        return ""
    if queues and not real:
        return _("The portal's own cluster runs programs of this machine, not images: that needs a real cluster.")
    return _("Your teams use images of the catalogue alone. A platform administrator can allow others to a team.")


class InstanceForm(OptionFields):
    """Choices are ids, so that a renamed row is still the one that was chosen."""

    more = ("name", "own_image", "volume", "path", "read_only", "ends", *option_forms.FIELDS)
    field_order = ("image", "size", "queue", *more)

    image = forms.ChoiceField(label=gettext_lazy("Image"))
    size = forms.ChoiceField(label=gettext_lazy("Size"))
    queue = forms.ChoiceField(label=gettext_lazy("Queue"))
    name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        help_text=gettext_lazy("Left empty, a name is proposed."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    own_image = forms.CharField(
        label=gettext_lazy("An image of your own instead"),
        required=False,
        max_length=512,
        help_text=gettext_lazy("As in “docker pull”: registry/team/name:tag. SSH works in any image that has a shell."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "off"}),
    )
    volume = forms.ChoiceField(
        label=gettext_lazy("One more volume"),
        required=False,
        help_text=gettext_lazy("Your home is mounted at /root without asking."),
    )
    path = forms.CharField(
        label=gettext_lazy("Mounted at"),
        required=False,
        widget=forms.TextInput(attrs={"placeholder": "/data", "autocomplete": "off", "spellcheck": "false"}),
    )
    read_only = forms.BooleanField(label=gettext_lazy("Read only"), required=False)
    ends = forms.ChoiceField(
        label=gettext_lazy("Ends"),
        required=False,
        help_text=gettext_lazy("It is stopped then, after a warning. Files stay, and it can be started again."),
    )

    def __init__(
        self,
        *args: Any,
        images: list[Image],
        sizes: list[Size],
        queues: list[Queue],
        volumes: list[Volume],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        choices: dict[str, list[tuple[str, str]]] = {
            "image": [(str(image.pk), facts.label(image)) for image in images],
            "size": [(str(size.pk), size_label(size)) for size in sizes],
            "queue": [(str(queue.pk), queue.name) for queue in queues],
            "volume": [
                ("", _("none")),
                *((str(volume.pk), f"{volume.queue.name}/{volume.name}") for volume in volumes),
            ],
            "ends": [("", _("no end of its own")), *((str(one.seconds), one.words) for one in keeping.offers())],
        }
        for name, found in choices.items():
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)
            field.choices = found
        self.offer_zones()
        if (why := no_own_image(queues)) and not self.is_bound:
            self.fields["own_image"].help_text = why
            self.fields["own_image"].widget.attrs["disabled"] = True

    def clean(self) -> dict[str, Any]:
        """A volume needs a place; the home's is taken."""
        data = super().clean() or {}
        if data.get("volume") and not data.get("path"):
            self.add_error("path", _("Say where the volume is mounted, for example /data."))
        if data.get("volume") and data.get("path") == HOME_PATH:
            self.add_error("path", _("The home is mounted at /root already."))
        return data
