"""Names in a document and the rows they mean: looked up with the author's eyes when a flow is saved, by id later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.catalog import selectors as catalog
from apps.catalog.models import Image, Size
from apps.core import refs
from apps.core.actors import Actor
from apps.core.errors import Conflict
from apps.flows.document import FlowDoc, NodeDoc
from apps.flows.executors.base import MountedVolume, Resolved
from apps.flows.executors.container import ContainerConfig, VolumeDoc
from apps.flows.models import FlowVersion
from apps.flows.reading import Faults
from apps.storage.models import Volume, VolumeKind
from apps.storage.states import VolumeState
from apps.tenants import ledger, selectors
from apps.tenants.models import Queue
from kubekit.specs import HOME_PATH

_GONE = (VolumeState.DELETING, VolumeState.DELETED)


def find_queue(actor: Actor, text: str) -> Queue:
    """The living queue of this name or id. Raises ``Invalid`` at ``queue``."""
    found: Queue | None = selectors.usable_queues(actor).filter(refs.named(text)).first()
    if found is None:
        faults = Faults()
        faults.add("queue", _("There is no queue “%(name)s”.") % {"name": text}, code="queue_unknown")
        faults.check()
    assert found is not None
    return found


def resolve(doc: FlowDoc, *, actor: Actor, queue: Queue) -> tuple[FlowDoc, dict[str, Any]]:
    """The document with names only and all paths filled in, and the ids behind it. Raises ``Invalid``.

    A size that the whole queue could never give is refused here, before anything is made.
    """
    faults, ids = Faults(), {}
    nodes = []
    for position, node in enumerate(doc.nodes):
        full, found = _resolve_node(node, f"nodes.{position}", actor=actor, queue=queue, faults=faults)
        nodes.append(full)
        ids[node.name] = found
    faults.check()
    return replace(doc, queue=queue.name, nodes=tuple(nodes)), ids


def _resolve_node(
    node: NodeDoc, place: str, *, actor: Actor, queue: Queue, faults: Faults
) -> tuple[NodeDoc, dict[str, Any]]:
    config = node.config
    if not isinstance(config, ContainerConfig):
        return node, {}
    images = catalog.offered(actor)
    image = _one(images, config.image, f"{place}.image", faults, _("There is no image “%(name)s”."), "image_unknown")
    sizes = Size.objects.for_actor(actor).filter(retired=False)
    size = _one(sizes, config.size, f"{place}.size", faults, _("There is no size “%(name)s”."), "size_unknown")
    if size is not None:
        _check_size(size, queue, f"{place}.size", faults)
    volumes, docs = [], []
    for number, entry in enumerate(config.volumes):
        where = f"{place}.volumes.{number}.volume"
        volume = _volume(entry, where, actor=actor, queue=queue, faults=faults)
        if volume is not None:
            volumes.append(str(volume.pk))
            path = entry.path or (HOME_PATH if volume.kind == VolumeKind.HOME else f"/mnt/{volume.name}")
            docs.append(replace(entry, volume=volume.name, path=path))
    paths = [entry.path for entry in docs]
    if len(set(paths)) < len(paths):
        faults.add(f"{place}.volumes", _("Two volumes stand at one path."))
    if image is None or size is None:
        return node, {}
    full = replace(config, image=image.name, size=size.name, volumes=tuple(docs))
    return replace(node, config=full), {"image": str(image.pk), "size": str(size.pk), "volumes": volumes}


def _one(rows: QuerySet[Any], text: str, place: str, faults: Faults, sentence: str, code: str) -> Any:
    found = rows.filter(refs.named(text)).first() if text else None
    if found is None and text:
        faults.add(place, sentence % {"name": text}, code=code)
    return found


def _check_size(size: Size, queue: Queue, place: str, faults: Faults) -> None:
    answer = ledger.fit(queue_name=queue.name, asked=size.amount, used={}, limit=ledger.limits(queue))
    if not answer.fits:
        faults.add(
            place,
            _("The size “%(size)s” is larger than the whole queue “%(queue)s”; it could never start.")
            % {"size": size.name, "queue": queue.name},
            code="size_exceeds_queue",
        )


def _volume(entry: VolumeDoc, place: str, *, actor: Actor, queue: Queue, faults: Faults) -> Volume | None:
    rows = Volume.objects.for_actor(actor).filter(queue=queue).exclude(state__in=_GONE)
    found = rows.filter(refs.named(entry.volume)).first()
    if found is None:
        text = _("There is no volume “%(name)s” in the queue “%(queue)s”.")
        faults.add(place, text % {"name": entry.volume, "queue": queue.name}, code="volume_unknown")
    return found


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of the catalogue and volumes by their ids as text."""

    images: Mapping[str, Image]
    sizes: Mapping[str, Size]
    volumes: Mapping[str, Volume]


def rows_of(nodes: Iterable[tuple[FlowVersion, NodeDoc]]) -> Rows:
    """All that these nodes' ids mean at this moment, in three statements whatever their number."""
    ids = [version.resolved[node.name] for version, node in nodes]
    return Rows(
        images=_by_id(Image, {entry["image"] for entry in ids}),
        sizes=_by_id(Size, {entry["size"] for entry in ids}),
        volumes=_by_id(Volume, {pk for entry in ids for pk in entry["volumes"]}),
    )


def _by_id(model: Any, ids: set[str]) -> dict[str, Any]:
    return {str(row.pk): row for row in model.objects.as_system().filter(pk__in=ids)} if ids else {}


def resolved_now(version: FlowVersion, node: NodeDoc, rows: Rows | None = None) -> Resolved:
    """What the version's ids mean at this moment, for one attempt. Raises ``Conflict`` when a row is gone.

    ``rows`` are those of `rows_of`, read for many attempts just now.
    """
    ids, config = version.resolved[node.name], node.config
    assert isinstance(config, ContainerConfig)
    rows = rows or rows_of([(version, node)])
    image, size, volumes = rows.images.get(ids["image"]), rows.sizes.get(ids["size"]), rows.volumes
    missing = [
        entry.volume
        for pk, entry in zip(ids["volumes"], config.volumes, strict=True)
        if pk not in volumes or volumes[pk].state in _GONE
    ]
    if missing:
        raise Conflict(
            _("A volume of the flow was deleted: %(names)s.") % {"names": ", ".join(missing)}, code="volume_missing"
        )
    if image is None or size is None:
        raise Conflict(_("The flow's image or size no longer exists."), code="catalog_entry_missing")
    return Resolved(
        image=image.reference,
        cpu_millis=size.cpu_millis,
        memory_bytes=size.memory_bytes,
        gpus=size.gpus,
        gpu_resource=size.gpu_resource,
        volumes=[
            MountedVolume(claim=volumes[pk].claim, path=entry.path, read_only=entry.read_only)
            for pk, entry in zip(ids["volumes"], config.volumes, strict=True)
        ],
    )
