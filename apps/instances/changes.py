"""What a change of an instance would mean, before it is made: two sets of settings in, a plan out. Pure.

Image, size, volumes, variables, script, shared memory and time zone are all part of the pod, and a pod is never changed
under a running program: each of them counts from a start on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from apps.core import quantities
from apps.instances.options import Options
from apps.tenants import amounts
from apps.tenants.ledger import Amount


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """A volume beside the home."""

    volume_id: UUID
    volume: str
    path: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.volume} → {self.path}" + (f" ({_('read only')})" if self.read_only else "")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that a launch is made of, with the words that people know it by."""

    image_id: UUID
    image: str
    size_id: UUID
    size: str
    amount: Amount
    mounts: frozenset[Mounted] = frozenset()
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One thing that changes; ``before`` or ``after`` is empty for what comes or goes."""

    what: str
    label: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What changes, what that ends, what is kept. ``needs_start``: it runs, and unchanged until then."""

    lines: tuple[Line, ...] = ()
    needs_start: bool = False
    ends: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing would change."""
        return not self.lines

    def as_dict(self) -> dict[str, Any]:
        """For the API."""
        lines = [{"what": one.what, "before": one.before, "after": one.after} for one in self.lines]
        return {"changes": lines, "needs_start": self.needs_start, "ends": list(self.ends), "keeps": list(self.kept)}


def changes(old: Settings, new: Settings, *, running: bool) -> Plan:
    """What becomes of an instance when ``new`` counts in place of ``old``."""
    lines = (*_image(old, new), *_size(old, new), *_mounts(old, new), *_options(old, new))
    if not lines:
        return Plan()
    kept = [_("The home and everything in it, the name, the address and the SSH host key.")]
    if kept_mounts := sorted(str(mount) for mount in old.mounts & new.mounts):
        kept.append(_("Mounted as before: %(volumes)s.") % {"volumes": ", ".join(kept_mounts)})
    if old.mounts - new.mounts:
        kept.append(_("Volumes that are no longer mounted keep their files."))
    ends = [_("With the restart: running programs, notebooks and terminals, and the present key.")] if running else []
    if old.image_id != new.image_id:
        kept.append(_("Packages that pip put into the home stay; those of another Python version are not found there."))
        ends.append(_("What was installed outside the home and the volumes."))
    return Plan(lines=lines, needs_start=running, ends=tuple(ends), kept=tuple(kept))


def largest(one: Amount, other: Amount) -> Amount:
    """Of each resource the larger amount: what is held while the old program ends and the new one is to come."""
    gpus = {name: max(one.gpus.get(name, 0), other.gpus.get(name, 0)) for name in one.gpus.keys() | other.gpus.keys()}
    return Amount(
        cpu_millis=max(one.cpu_millis, other.cpu_millis),
        memory_bytes=max(one.memory_bytes, other.memory_bytes),
        gpus={name: count for name, count in gpus.items() if count},
        storage_bytes=max(one.storage_bytes, other.storage_bytes),
    )


def described(amount: Amount) -> str:
    """``2 CPU, 4 GiB``, with the GPUs where it has some."""
    parts = [quantities.cpus(amount.cpu_millis), quantities.size(amount.memory_bytes)]
    parts += [f"{count} {amounts.label(name)}" for name, count in sorted(amount.gpus.items())]
    return ", ".join(parts)


def _image(old: Settings, new: Settings) -> tuple[Line, ...]:
    if old.image_id == new.image_id:
        return ()
    return (Line(what="image", label=_("Image"), before=old.image, after=new.image),)


def _size(old: Settings, new: Settings) -> tuple[Line, ...]:
    if old.size_id == new.size_id:
        return ()
    before, after = (f"{one.size}: {described(one.amount)}" for one in (old, new))
    return (Line(what="size", label=_("Size"), before=before, after=after),)


def _mounts(old: Settings, new: Settings) -> tuple[Line, ...]:
    here, there = ({mount.path: mount for mount in one.mounts} for one in (old, new))
    return tuple(
        Line(
            what="volumes",
            label=_("Volume at %(path)s") % {"path": path},
            before=str(here.get(path, "")),
            after=str(there.get(path, "")),
        )
        for path in sorted(here.keys() | there.keys())
        if here.get(path) != there.get(path)
    )


def _options(old: Settings, new: Settings) -> tuple[Line, ...]:
    before, after = old.options, new.options
    lines = [
        Line(what="env", label=_("Variable %(name)s") % {"name": name}, before=_of(before.env, name), after=text)
        for name in sorted(before.env.keys() | after.env.keys())
        if before.env.get(name) != after.env.get(name)
        for text in [_of(after.env, name)]
    ]
    if before.script != after.script:
        lines.append(
            Line(what="script", label=_("Start-up script"), before=_lines(before.script), after=_lines(after.script))
        )
    if before.shm_bytes != after.shm_bytes:
        half = _("half of the memory")
        sizes = [half if one is None else quantities.size(one) for one in (before.shm_bytes, after.shm_bytes)]
        lines.append(Line(what="shm_bytes", label=_("Shared memory"), before=sizes[0], after=sizes[1]))
    if before.time_zone != after.time_zone:
        zones = [one or "UTC" for one in (before.time_zone, after.time_zone)]
        lines.append(Line(what="time_zone", label=_("Time zone"), before=zones[0], after=zones[1]))
    return tuple(lines)


def _of(env: Mapping[str, str], name: str) -> str:
    return f"“{env[name]}”" if name in env else ""


def _lines(script: str) -> str:
    """A script by its length and its first line; a page has no room for two of them."""
    if not script:
        return ""
    first = script.strip().splitlines()[0]
    return _("%(count)d lines, “%(first)s”") % {"count": len(script.splitlines()), "first": first[:60]}
