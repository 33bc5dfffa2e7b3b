"""Change an instance that exists: first what it would mean, then the change, in one transaction with its quota.

What is at rest is changed at once. What runs goes on as it is; the change counts after a restart, now or whenever the
next start comes. Two pages at once: whoever names the revision that they saw is told when it is no longer so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.db import transaction
from django.utils.translation import gettext as _

from apps.catalog import own
from apps.catalog.models import Image, Size
from apps.core import audit, live
from apps.core.actors import Actor
from apps.core.errors import Conflict, Invalid
from apps.instances import changes, choices, forecast, options, pending, services
from apps.instances.changes import Mounted, Plan, Settings
from apps.instances.forecast import Forecast
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.tenants import access

When = Literal["", "restart", "next_start"]
TIMES: Sequence[When] = ("restart", "next_start")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What should be otherwise; what is left out stays. ``volumes`` and ``options['env']`` replace the whole of it."""

    image: choices.Reference | None = None
    own_image: str = ""
    size: choices.Reference | None = None
    volumes: Sequence[Mapping[str, Any]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a change would mean now. ``waits`` is what was changed before and still waits for the next start."""

    plan: Plan
    forecast: Forecast
    revision: int
    waits: Plan
    wanted: Settings

    def as_dict(self) -> dict[str, Any]:
        """For the API."""
        return {**self.plan.as_dict(), "forecast": self.forecast.as_dict(), "revision": self.revision}


def preview(*, actor: Actor, instance: Instance, wishes: Wishes) -> Preview:
    """What would change, what that ends, and whether it would start. Writes nothing. Raises as `change` does."""
    access.require_act_on(actor, instance.queue, instance.owner_id)
    services.refuse_when_going(instance)
    wanted, _image = _wanted(actor, instance, wishes)
    size = Size.objects.for_actor(actor).get(pk=wanted.size_id)
    return Preview(
        plan=changes.changes(pending.present(instance), wanted, running=not instance.at_rest),
        forecast=forecast.will_it_run(actor=actor, queue=instance.queue, size=size, instead_of=instance),
        revision=instance.revision,
        waits=waiting(instance),
        wanted=wanted,
    )


def waiting(instance: Instance) -> Plan:
    """What was changed while it runs and counts from its next start on."""
    if not instance.pending:
        return Plan()
    return changes.changes(pending.present(instance), pending.next_start(instance), running=True)


def change(
    *, actor: Actor, instance: Instance, wishes: Wishes, when: When = "", revision: int | None = None
) -> Instance:
    """Change it. ``when`` says what becomes of one that runs: restarted at once, or left alone until its next start.

    Raises ``Conflict`` (``not_stopped`` when it runs and nothing was said, ``changed_meanwhile`` when ``revision`` is
    no longer so), ``Invalid`` with the places of what is wrong, and ``OverQuota`` before anything was changed.
    """
    with transaction.atomic():
        row = services.locked(actor, instance)
        services.refuse_when_going(row)
        _refuse_old_revision(row, revision)
        wanted, image = _wanted(actor, row, wishes)
        wanted = replace(wanted, image_id=own.keep(image).pk)
        now = pending.present(row)
        plan = changes.changes(now, wanted, running=not row.at_rest)
        difference = pending.difference(now, wanted)
        if difference == row.pending and (row.at_rest or when != "restart" or not difference):
            return row
        if not row.at_rest and difference and when not in TIMES:
            raise _say_when(row)
        if wanted.size_id != now.size_id:
            services.refuse_what_never_fits(actor, row.queue, Size.objects.for_actor(actor).get(pk=wanted.size_id))
        row.revision += 1
        _store(row, wanted, difference)
        audit.record(actor=actor, verb="instance.change", obj=row, detail=_told(plan, when))
        live.announce(row)
        if not row.at_rest and row.state == InstanceState.STOPPING and row.wants_to_run:
            services.hold_for_next_start(actor, row)
        elif not row.at_rest and when == "restart":
            services.restart(actor=actor, instance=row)
    return row


def _store(row: Instance, wanted: Settings, difference: Mapping[str, Any]) -> None:
    if row.at_rest:
        row.pending = {}
        pending.write(row, wanted)
        return
    row.pending = dict(difference)
    row.save(update_fields=["pending", "revision", "updated_at"])


def _wanted(actor: Actor, row: Instance, wishes: Wishes) -> tuple[Settings, Image]:
    """What the next launch would be made of, and its image, which need not be stored yet. Raises ``Invalid``."""
    base = pending.next_start(row)
    image = _image_of(actor, row, base, wishes)
    size = _size_of(actor, base, wishes)
    if wishes.volumes is None:
        mounts = base.mounts
    else:
        found = choices.volumes(actor, row.queue, wishes.volumes)
        mounts = frozenset(
            Mounted(volume_id=one.volume.pk, volume=one.volume.name, path=one.path, read_only=one.read_only)
            for one in found
        )
    wanted = Settings(
        image_id=image.pk,
        image=image.name if image.team is None else image.reference,
        size_id=size.pk,
        size=size.name,
        amount=size.amount,
        mounts=mounts,
        options=options.check(base.options.given(wishes.options), memory_bytes=size.memory_bytes),
    )
    return wanted, image


def _image_of(actor: Actor, row: Instance, base: Settings, wishes: Wishes) -> Image:
    """What it has may be retired meanwhile and stays all the same."""
    if (wishes.image is None and not wishes.own_image) or str(wishes.image) in {str(base.image_id), base.image}:
        image: Image = Image.objects.as_system().get(pk=base.image_id)
        return image
    found = choices.image_or_own(actor, row.queue, wishes.image or "", wishes.own_image)
    known = Image.objects.as_system().filter(team=found.team, reference=found.reference).first()
    return known if found.team is not None and known is not None else found


def _size_of(actor: Actor, base: Settings, wishes: Wishes) -> Size:
    if wishes.size is None or str(wishes.size) in {str(base.size_id), base.size}:
        size: Size = Size.objects.as_system().get(pk=base.size_id)
        return size
    return choices.size(actor, wishes.size)


def _told(plan: Plan, when: When) -> dict[str, Any]:
    """For the history: names of variables and no values, that there is another script and not which."""
    secretive = {"env", "script"}
    lines = [
        {"what": one.label} if one.what in secretive else {"what": one.label, "before": one.before, "after": one.after}
        for one in plan.lines
    ]
    return {"changes": lines, **({"when": when} if when else {})}


def _refuse_old_revision(row: Instance, revision: int | None) -> None:
    if revision is not None and revision != row.revision:
        raise Conflict(
            _("The instance “%(name)s” was changed by somebody else meanwhile.") % {"name": row.name},
            code="changed_meanwhile",
            next=_("Look at what it is now, and change that."),
            data={"revision": row.revision},
        )


def _say_when(row: Instance) -> Conflict:
    return Conflict(
        _("The instance “%(name)s” is %(state)s, and a change counts from a start on.")
        % {"name": row.name, "state": row.state_label},
        code="not_stopped",
        next=_("Say when: restart it now, or leave it until its next start."),
    )


def when_of(text: str) -> When:
    """The word of a form or a request. Raises ``Invalid``."""
    for known in TIMES:
        if text == known:
            return known
    if text:
        sentence = _("“%(text)s” is not a time for a change.") % {"text": text[:40]}
        raise Invalid(sentence, next=_("Say restart or next_start."), errors={"when": sentence})
    return ""
