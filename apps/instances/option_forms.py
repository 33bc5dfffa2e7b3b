"""Form fields for what is set of an instance beside image, size and volumes (`options`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.core import zones
from apps.instances.options import Options

MIB = 1 << 20
FIELDS = ("env", "script", "shm_mib", "time_zone")
Pairs = list[tuple[str, str]]


class EnvRows(forms.Widget):
    """Rows of a name and a value; two empty ones at the end, and more by a button where scripts run."""

    is_group = True

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Pairs:
        """The rows that have anything in them, as they were typed."""
        rows = zip(data.getlist(f"{name}-name"), data.getlist(f"{name}-value"), strict=False)
        return [(key.strip(), value) for key, value in rows if key.strip() or value]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return f"{name}-name" not in data

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        rows = list(value.items()) if isinstance(value, Mapping) else list(value or ())
        context = {"name": name, "rows": [*rows, ("", ""), ("", "")], "attrs": attrs or {}}
        return render_to_string("instances/env_rows.html", context)


class EnvField(forms.Field):
    """Variables as a mapping; what a name or value may be is `options.check`'s to say."""

    widget = EnvRows

    def clean(self, value: Pairs) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, text in value:
            if not name:
                raise ValidationError(_("A value has no name."))
            if name in found:
                raise ValidationError(_("%(name)s stands here twice.") % {"name": name[:60]})
            found[name] = text
        return found


class OptionFields(forms.Form):
    """Mix into a form; `taken` is what the fields begin with, `given` what they ask for."""

    env = EnvField(
        label=gettext_lazy("Environment variables"),
        required=False,
        help_text=gettext_lazy(
            "Do not put secrets here: everybody who may see this instance reads names and values. Keep a secret in a "
            "file of your home."
        ),
    )
    script = forms.CharField(
        label=gettext_lazy("Start-up script"),
        required=False,
        strip=False,
        help_text=gettext_lazy(
            "Runs before JupyterLab at each start, as you, for at most two minutes. Its output is in the log; if it "
            "fails, the instance starts all the same and says so."
        ),
        widget=forms.Textarea(
            attrs={"rows": 4, "class": "mono", "spellcheck": "false", "placeholder": "pip install -r /root/needed.txt"}
        ),
    )
    shm_mib = forms.IntegerField(
        label=gettext_lazy("Shared memory (/dev/shm) in MiB"),
        required=False,
        min_value=1,
        help_text=gettext_lazy("A part of the memory. Left empty, up to half of it: enough for most data loaders."),
    )
    time_zone = forms.ChoiceField(label=gettext_lazy("Time zone"), required=False)

    def offer_zones(self) -> None:
        """The zones to choose from; for ``__init__`` of the form."""
        field = self.fields["time_zone"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "UTC"), *((zone, zone) for zone in zones.zones()[1:])]


def taken(found: Options) -> dict[str, Any]:
    """The fields' values for these options."""
    shm = None if found.shm_bytes is None else found.shm_bytes // MIB
    return {"env": dict(found.env), "script": found.script, "shm_mib": shm, "time_zone": found.time_zone}


def given(data: Mapping[str, Any], base: Options | None = None) -> Options:
    """The options that the fields ask for."""
    shm = data.get("shm_mib")
    wanted = {
        "env": data.get("env") or {},
        "script": data.get("script") or "",
        "shm_bytes": shm * MIB if shm else None,
        "time_zone": data.get("time_zone") or "",
    }
    return (base or Options()).given(wanted)


def read(data: Any) -> Options:
    """What is typed so far, for the panel beside the form; what cannot be read is left out."""
    shm = data.get("shm_mib", "").strip()
    pairs = EnvRows().value_from_datadict(data, None, "env") if "env-name" in data else []
    typed = {"script": data.get("script", ""), "time_zone": data.get("time_zone", "")}
    return given(
        {**typed, "env": {name: text for name, text in pairs if name}, "shm_mib": int(shm) if shm.isdecimal() else None}
    )


def field_of(place: str) -> str:
    """The field that an error of `options.check` belongs to."""
    return {"shm_bytes": "shm_mib"}.get(place, "env" if place.startswith("env.") else place)


def put_errors(form: forms.Form, errors: Mapping[str, Any]) -> None:
    """Beside the fields; what stands for several rows of one field stands there together."""
    for place, text in errors.items():
        if (name := field_of(place)) in form.fields:
            form.add_error(name, str(text))


def differences(before: Options, after: Options) -> list[str]:
    """The same for ``portalctl instance set``."""
    changed = {name: text for name, text in after.env.items() if before.env.get(name) != text}
    said = [word for name, text in sorted(changed.items()) for word in ("--env", f"{name}={text}")]
    said += [word for name in sorted(before.env.keys() - after.env.keys()) for word in ("--unset-env", name)]
    if before.shm_bytes != after.shm_bytes:
        said += ["--shm", f"{after.shm_bytes // MIB}Mi" if after.shm_bytes else "default"]
    if before.time_zone != after.time_zone:
        said += ["--time-zone", after.time_zone or "UTC"]
    return said if before.script == after.script else [*said, "--script", "FILE" if after.script else "/dev/null"]


def words(found: Options) -> Sequence[str]:
    """The same for ``portalctl instance create``; a script is a file there."""
    said = [word for name, value in sorted(found.env.items()) for word in ("--env", f"{name}={value}")]
    said += ["--shm", f"{found.shm_bytes // MIB}Mi"] if found.shm_bytes else []
    said += ["--time-zone", found.time_zone] if found.time_zone else []
    return [*said, "--script", "FILE"] if found.script else said
