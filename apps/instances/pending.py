"""Changes that wait for the end of what runs: kept in the row, in force as soon as it is at rest.

What is pending is what differs from the row: ``image`` and ``size`` by id, ``volumes`` whole, ``options`` whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.catalog.models import Image, Size
from apps.instances import changes, options
from apps.instances.changes import Mounted, Settings
from apps.instances.models import Instance, InstanceMount
from apps.instances.spec import KIND
from apps.instances.states import InstanceState
from apps.storage.models import Volume
from apps.storage.states import VolumeState
from apps.tenants import ledger
from apps.tenants.ledger import Amount


def present(instance: Instance) -> Settings:
    """What the present launch is made of, or the next one of what is at rest."""
    return Settings(
        image_id=instance.image_id,
        image=instance.image.name if instance.image.team_id is None else instance.image.reference,
        size_id=instance.size_id,
        size=instance.size.name,
        amount=instance.size.amount,
        mounts=frozenset(
            Mounted(volume_id=one.volume_id, volume=one.volume.name, path=one.path, read_only=one.read_only)
            for one in instance.mounted
        ),
        options=options.of(instance.options),
    )


def next_start(instance: Instance) -> Settings:
    """What the next launch is made of. What is pending and gone meanwhile is left out: the present one stays then."""
    waiting = instance.pending
    now = present(instance)
    if not waiting:
        return now
    image, size = _image(waiting) or instance.image, _size(waiting) or instance.size
    mounts = now.mounts if "volumes" not in waiting else frozenset(_mounts(instance, waiting["volumes"]))
    return Settings(
        image_id=image.pk,
        image=image.name if image.team_id is None else image.reference,
        size_id=size.pk,
        size=size.name,
        amount=size.amount,
        mounts=mounts,
        options=options.of(waiting["options"]) if "options" in waiting else now.options,
    )


def to_hold(instance: Instance) -> Amount:
    """What the quota must have for the next start while the present launch is not over."""
    size = _size(instance.pending)
    return instance.size.amount if size is None else changes.largest(instance.size.amount, size.amount)


def difference(old: Settings, new: Settings) -> dict[str, Any]:
    """For the column ``pending``: what of ``new`` is not so in ``old``."""
    found: dict[str, Any] = {}
    if new.image_id != old.image_id:
        found["image"] = str(new.image_id)
    if new.size_id != old.size_id:
        found["size"] = str(new.size_id)
    if new.mounts != old.mounts:
        found["volumes"] = [
            {"volume": str(one.volume_id), "path": one.path, "read_only": one.read_only}
            for one in sorted(new.mounts, key=lambda mount: mount.path)
        ]
    if new.options != old.options:
        found["options"] = new.options.stored()
    return found


def put_in_force(instance: Instance) -> None:
    """Let what is pending count, of a locked row that has come to rest; its quota becomes that of the new size.

    Call it inside the transaction that found no pod left. `to_hold` was held before, so this is never refused.
    """
    if not instance.pending:
        return
    settings = next_start(instance)
    instance.pending = {}
    write(instance, settings)
    if instance.state == InstanceState.STOPPED and instance.wants_to_run:
        ledger.reserve(queue_id=instance.queue_id, kind=KIND, object_id=instance.pk, amount=settings.amount)


def write(instance: Instance, settings: Settings) -> None:
    """Make these the settings of a locked row that is at rest."""
    mounts = [
        InstanceMount(instance=instance, volume_id=one.volume_id, path=one.path, read_only=one.read_only)
        for one in settings.mounts
    ]
    if settings.mounts != present(instance).mounts:
        InstanceMount.objects.as_system().filter(instance_id=instance.pk).delete()
        InstanceMount.objects.bulk_create(mounts)
        instance.__dict__.pop("mounted", None)
    instance.image_id, instance.size_id = settings.image_id, settings.size_id
    instance.options = settings.options.stored()
    instance.save(update_fields=["image", "size", "options", "pending", "revision", "updated_at"])


def _image(waiting: Mapping[str, Any]) -> Image | None:
    return Image.objects.as_system().filter(pk=waiting["image"]).first() if "image" in waiting else None


def _size(waiting: Mapping[str, Any]) -> Size | None:
    return Size.objects.as_system().filter(pk=waiting["size"]).first() if "size" in waiting else None


def _mounts(instance: Instance, wanted: list[Mapping[str, Any]]) -> list[Mounted]:
    rows = Volume.objects.as_system().filter(queue_id=instance.queue_id, pk__in=[one["volume"] for one in wanted])
    rows = rows.exclude(state__in=[VolumeState.DELETING, VolumeState.DELETED])
    known = {str(volume.pk): volume for volume in rows}
    return [
        Mounted(
            volume_id=known[one["volume"]].pk,
            volume=known[one["volume"]].name,
            path=one["path"],
            read_only=one["read_only"],
        )
        for one in wanted
        if one["volume"] in known
    ]
