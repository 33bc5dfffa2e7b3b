"""Rotate key: another key for an instance that runs on (R46).

The row holds the new key beside the present one until the running program has it, so that nothing is ever half done:
what the page shows and what tickets are signed with is always a key that opens. Pod first, then the Secret, then the
row: whoever dies in between leaves a new key that is pushed again, which does no harm.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.translation import gettext as _

from apps.clusters import access as cluster_access
from apps.clusters.models import Cluster
from apps.core import audit, live, reconciling
from apps.core.actors import Actor
from apps.core.errors import Conflict, NotFound
from apps.core.reasons import Reason
from apps.core.secret import Secret
from apps.instances import imaging, launching
from apps.instances.decide import Decision
from apps.instances.models import Instance
from apps.instances.spec import KIND, spec_of
from apps.instances.states import LAUNCHED, InstanceState
from apps.tenants import access
from kubekit import keyfile
from kubekit.build import instance as build
from kubekit.build.pod import CONTAINER
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import KubeError
from kubekit.errors import NotFound as KubeNotFound
from kubekit.streams import Streams

#: Between two tries to bring a new key to a program that did not take it.
AGAIN_S = 5.0
NOT_ROTATED = "key_not_rotated"


def rotate_key(*, actor: Actor, instance: Instance) -> Instance:
    """Give a running instance another key; the present one is dead when it has arrived. Audited.

    One that is on its way already is not replaced by a further one. Raises ``Conflict`` when it does not run.
    """
    with transaction.atomic():
        row = _locked(actor, instance.pk)
        if row.state != InstanceState.RUNNING or not row.key:
            raise Conflict(
                _("The instance “%(name)s” is %(state)s; its key can be changed while it runs.")
                % {"name": row.name, "state": row.state_label},
                code="not_running",
                next=_("Start it; each start makes a new key."),
            )
        if not row.next_key:
            row.next_key = Secret(secrets.token_urlsafe(launching.KEY_BYTES))
            audit.record(actor=actor, verb="instance.rotate-key", obj=row)
        for name, value in reconciling.look_now(row).items():
            setattr(row, name, value)
        row.save(update_fields=["next_key", "due_at", "pokes", "updated_at"])
        live.announce(row)
        reconciling.hint(KIND, row.pk)
    return row


def _locked(actor: Actor, pk: UUID) -> Instance:
    rows = Instance.objects.for_actor(actor).select_for_update(of=("self",))
    row: Instance | None = rows.select_related("queue__cluster").filter(pk=pk).first()
    if row is None:
        raise NotFound()
    access.require_act_on(actor, row.queue, row.owner_id)
    return row


def is_on_its_way(instance: Instance) -> bool:
    """Whether a new key is being brought to the program at this moment, with nothing in its way so far."""
    return bool(instance.next_key) and instance.reason_code != NOT_ROTATED


# --- bringing it there -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a new key in this round: ``values`` of the row once it counts, else what stood in the way."""

    values: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def advance(instance: Instance, cluster: KubeCluster) -> Outcome | None:
    """Bring the new key to the running program and into the Secret; None when there is nothing to bring now."""
    if not instance.next_key or instance.state != InstanceState.RUNNING:
        return None
    spec, key = spec_of(instance), instance.next_key.reveal()
    try:
        carry(instance.queue.cluster, spec.namespace, instance.pod_name, key, shell=imaging.shell(instance.image))
        _update_secret(cluster, spec.namespace, spec.object_name, build.secret(spec, {"key": key})["data"])
    except KubeError as error:
        return Outcome(error=error.message)
    return Outcome(values={"key": instance.next_key, "next_key": ""})


def carry(cluster: Cluster, namespace: str, pod: str, key: str, *, shell: str) -> None:
    """Push the key into the pod, where ``shell`` takes it. Raises ``KubeError``."""

    async def push() -> None:
        async with Streams(credentials) as streams:
            await keyfile.push(streams, namespace, pod, CONTAINER, key, shell=shell)

    credentials = cluster_access.credentials_of(cluster)
    asyncio.run(push())


def _update_secret(cluster: KubeCluster, namespace: str, name: str, data: Mapping[str, str]) -> None:
    """For the next program of this launch. What else it holds stays; one that is gone comes back at the next start."""
    try:
        cluster.patch_merge("Secret", namespace, name, {"data": data})
    except KubeNotFound:
        return


def applied(instance: Instance, outcome: Outcome | None, decision: Decision) -> Decision:
    """The decision with what became of the new key. Pure."""
    if not instance.next_key or decision.to not in LAUNCHED:
        return decision
    if outcome is not None and outcome.values:
        return replace(decision, values={**decision.values, **outcome.values})
    again_s = min(AGAIN_S, decision.again_s or AGAIN_S)
    if outcome is None or decision.to != InstanceState.RUNNING:
        return replace(decision, again_s=again_s)
    return replace(decision, reason=Reason(code=NOT_ROTATED, evidence=(outcome.error,)), again_s=again_s)
