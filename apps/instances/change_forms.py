"""The form of a change: what the instance is made of, as it would be from its next start on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.catalog import facts
from apps.catalog.models import Image, Size
from apps.instances import changing, option_forms
from apps.instances.changes import Settings
from apps.instances.changing import Wishes
from apps.instances.forms import size_label
from apps.instances.option_forms import OptionFields
from apps.storage.models import Volume

Rows = list[dict[str, str]]
READ_ONLY, WRITABLE = "ro", "rw"


class MountRows(forms.Widget):
    """Rows of a volume, where it is mounted, and whether it is only read; an empty one at the end."""

    is_group = True
    volumes: Sequence[tuple[str, str]] = ()

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Rows:
        """The rows in which a volume is chosen, or a path was typed."""
        columns = zip(*(data.getlist(f"{name}-{part}") for part in ("volume", "path", "mode")), strict=False)
        rows = [{"volume": volume, "path": path.strip(), "mode": mode} for volume, path, mode in columns]
        return [row for row in rows if row["volume"] or row["path"]]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return f"{name}-volume" not in data

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        rows = [*(value or ()), {"volume": "", "path": "", "mode": WRITABLE}]
        context = {"name": name, "rows": rows, "volumes": self.volumes, "attrs": attrs or {}}
        return render_to_string("instances/mount_rows.html", context)


class MountsField(forms.Field):
    """Volumes as `choices.volumes` takes them."""

    widget = MountRows

    def clean(self, value: Rows) -> list[dict[str, Any]]:
        for row in value:
            if not row["volume"]:
                raise ValidationError(_("Nothing is chosen to be mounted at %(path)s.") % {"path": row["path"][:60]})
            if not row["path"]:
                raise ValidationError(_("Say where each volume is mounted, for example /data."))
        return [{"volume": row["volume"], "path": row["path"], "read_only": row["mode"] == READ_ONLY} for row in value]


class ChangeForm(OptionFields):
    """Everything that counts from a start on. ``when`` is asked only of one that runs."""

    field_order = ("image", "size", "mounts", "env", "script", "shm_mib", "time_zone", "when")

    revision = forms.IntegerField(widget=forms.HiddenInput)
    image = forms.ChoiceField(label=gettext_lazy("Image"))
    size = forms.ChoiceField(label=gettext_lazy("Size"))
    mounts = MountsField(
        label=gettext_lazy("Volumes beside the home"),
        required=False,
        help_text=gettext_lazy("What is taken out here keeps its files."),
    )
    when = forms.ChoiceField(
        label=gettext_lazy("When"),
        choices=[
            ("restart", gettext_lazy("Restart now: what runs in it ends.")),
            ("next_start", gettext_lazy("At its next start: it runs on as it is until then.")),
        ],
    )

    def __init__(
        self, *args: Any, images: list[Image], sizes: list[Size], volumes: list[Volume], running: bool, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.offer_zones()
        for name, found in (
            ("image", [(str(image.pk), facts.label(image)) for image in images]),
            ("size", [(str(size.pk), size_label(size)) for size in sizes]),
        ):
            field = self.fields[name]
            assert isinstance(field, forms.ChoiceField)
            field.choices = found
        rows = self.fields["mounts"].widget
        assert isinstance(rows, MountRows)
        rows.volumes = [(str(volume.pk), volume.name) for volume in volumes]
        if not running:
            del self.fields["when"]


def taken(settings: Settings, revision: int) -> dict[str, Any]:
    """What the form begins with."""
    mounts = [
        {"volume": str(one.volume_id), "path": one.path, "mode": READ_ONLY if one.read_only else WRITABLE}
        for one in sorted(settings.mounts, key=lambda mount: mount.path)
    ]
    chosen = {"image": str(settings.image_id), "size": str(settings.size_id), "mounts": mounts, "revision": revision}
    return {**chosen, **option_forms.taken(settings.options), "when": changing.TIMES[1]}


def wishes(data: Mapping[str, Any]) -> Wishes:
    """What the form asks for."""
    asked = option_forms.given(data)
    options = {name: getattr(asked, name) for name in ("env", "script", "shm_bytes", "time_zone")}
    return Wishes(image=data["image"], size=data["size"], volumes=data["mounts"], options=options)


def put_errors(form: forms.Form, errors: Mapping[str, Any]) -> None:
    """Beside the fields; those of single volumes stand beside all of them."""
    named = {("mounts" if place.startswith("volumes.") else place): text for place, text in errors.items()}
    option_forms.put_errors(form, named)
