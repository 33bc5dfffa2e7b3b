"""What its owner sets of an instance beside image, size and volumes: variables, start-up script, memory, time zone.

Variables stand in the pod's manifest, which everybody reads who may see the instance; pages say so beside the field.
The script is a file of the instance's Secret, since a manifest has no room for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.utils.translation import gettext as _

from apps.core import quantities, zones
from apps.core.errors import Invalid
from kubekit.errors import SpecError
from kubekit.specs import check_env

#: Bounds that keep a pod's manifest (1.5 MiB at most) and its Secret (1 MiB) far from what a server refuses.
MOST_VARIABLES = 64
VALUE_BYTES = 4096
ENV_BYTES = 32 * 1024
SCRIPT_BYTES = 16 * 1024
SHM_LEAST_BYTES = 16 << 20
#: What the image itself sets and cannot do without.
KEPT_BY_IMAGE = frozenset({"HOME", "PATH"})
ZONE = "TZ"
#: The file of the instance's Secret that the entrypoint runs.
SCRIPT_KEY = "start-script"


@dataclass(frozen=True, kw_only=True)
class Options:
    """``shm_bytes`` None: half of the memory. ``time_zone`` empty: UTC, as the image has it."""

    env: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    shm_bytes: int | None = None
    time_zone: str = ""

    def stored(self) -> dict[str, Any]:
        """For the row: what is not as it is without asking."""
        found = {"env": dict(self.env), "script": self.script, "shm_bytes": self.shm_bytes, "time_zone": self.time_zone}
        return {name: value for name, value in found.items() if value}

    def environment(self) -> dict[str, str]:
        """The container's variables; a TZ of one's own goes before the time zone."""
        zone = {ZONE: self.time_zone} if self.time_zone else {}
        return {**zone, **self.env}

    def given(self, wanted: Mapping[str, Any]) -> Options:
        """With what is asked for, and everything else as it is."""
        names = ("env", "script", "shm_bytes", "time_zone")
        return replace(self, **{name: wanted[name] for name in names if name in wanted})


def of(stored: Mapping[str, Any]) -> Options:
    """What `Options.stored` wrote."""
    return Options(
        env=stored.get("env", {}),
        script=stored.get("script", ""),
        shm_bytes=stored.get("shm_bytes"),
        time_zone=stored.get("time_zone", ""),
    )


def check(wanted: Options, *, memory_bytes: int) -> Options:
    """The options in their one spelling. Raises ``Invalid`` with the places of all that is wrong."""
    wanted = replace(wanted, script=_plain(wanted.script))
    errors = {**_env_errors(wanted.env), **_script_errors(wanted.script), **_shm_errors(wanted.shm_bytes, memory_bytes)}
    if wanted.time_zone and not zones.is_zone(wanted.time_zone):
        errors["time_zone"] = _("“%(zone)s” is no time zone; they are named like Asia/Shanghai.") % {
            "zone": wanted.time_zone[:60]
        }
    if errors:
        raise Invalid(
            _("The instance cannot be set up like this."),
            code="options_invalid",
            next=_("Correct what is said beside each field."),
            errors=errors,
        )
    return wanted


def _plain(script: str) -> str:
    """Lines end as a shell expects it; a script of spaces is none."""
    text = script.replace("\r\n", "\n")
    if not text.strip():
        return ""
    return text if text.endswith("\n") else f"{text}\n"


def _env_errors(env: Mapping[str, str]) -> dict[str, Any]:
    if len(env) > MOST_VARIABLES:
        return {"env": _("At most %(count)d variables are possible.") % {"count": MOST_VARIABLES}}
    errors: dict[str, Any] = {}
    for name, value in env.items():
        sentence = _wrong_name(name) or _wrong_value(name, value)
        if sentence:
            errors[f"env.{name[:60]}"] = sentence
    if not errors and sum(len(f"{name}{value}".encode()) for name, value in env.items()) > ENV_BYTES:
        errors["env"] = _("All variables together have more than %(size)s.") % {"size": quantities.size(ENV_BYTES)}
    return errors


def _wrong_name(name: str) -> str:
    shown = {"name": name[:60]}
    if name.startswith("MLPORTAL_"):
        return _("%(name)s: names that begin with MLPORTAL_ belong to the portal.") % shown
    if name in KEPT_BY_IMAGE:
        return _("%(name)s belongs to the image.") % shown
    try:
        check_env({name: ""})
    except SpecError:
        return _("“%(name)s” is not a variable’s name: letters, digits and “_”, and no digit first.") % shown
    return "" if len(name) <= 255 else _("“%(name)s” is longer than 255 characters.") % shown


def _wrong_value(name: str, value: str) -> str:
    if "\0" in value:
        return _("The value of %(name)s contains a NUL character.") % {"name": name}
    if len(value.encode()) > VALUE_BYTES:
        return _("The value of %(name)s is longer than %(size)s.") % {
            "name": name,
            "size": quantities.size(VALUE_BYTES),
        }
    return ""


def _script_errors(script: str) -> dict[str, Any]:
    if "\0" in script:
        return {"script": _("The script contains a NUL character.")}
    if len(script.encode()) > SCRIPT_BYTES:
        return {
            "script": _("The script is longer than %(size)s; put it into the home and call it from here.")
            % {"size": quantities.size(SCRIPT_BYTES)}
        }
    return {}


def _shm_errors(shm_bytes: int | None, memory_bytes: int) -> dict[str, Any]:
    if shm_bytes is None or SHM_LEAST_BYTES <= shm_bytes <= memory_bytes:
        return {}
    return {
        "shm_bytes": _("Shared memory is part of the memory: %(least)s to %(most)s with this size.")
        % {"least": quantities.size(SHM_LEAST_BYTES), "most": quantities.size(memory_bytes)}
    }
