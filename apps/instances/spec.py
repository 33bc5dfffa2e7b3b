"""From the row to what the cluster should have: pure, so that the YAML tab shows exactly what is applied."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from apps.catalog.models import Size
from apps.clusters.exposing import ROUTE_KINDS, gateway_of
from apps.clusters.installation import install_id
from apps.core.secret import MASK
from apps.instances import imaging, options
from apps.instances.models import Instance
from apps.tenants import ledger
from apps.tenants.models import Queue
from kubekit import names
from kubekit.build import instance as build
from kubekit.specs import HOME_PATH, NVIDIA, Identity, InstanceSpec, Mount, Placement, Resources

KIND = "instance"
#: Seconds between asking a program to end and killing it: JupyterLab saves and shuts its kernels down in two.
GRACE_S = 10
Obj = dict[str, Any]


def resources_of(size: Size, queue: Queue, shm_bytes: int | None = None) -> Resources:
    """Limits are the size; requests are the queue's guaranteed share of it. /dev/shm is a part of the memory."""
    cpu, memory = ledger.guaranteed(queue, size.amount)
    return Resources(
        cpu_millis=size.cpu_millis,
        memory_bytes=size.memory_bytes,
        cpu_request_millis=cpu,
        memory_request_bytes=memory,
        gpus=size.gpus,
        gpu_resource=size.gpu_resource or NVIDIA,
        shm_bytes=None if shm_bytes is None else min(shm_bytes, size.memory_bytes),
    )


def identity_of(instance: Instance) -> Identity:
    """The labels' content. The generation label carries the launch, so that each pod tells which start made it."""
    return Identity(
        install=install_id(),
        kind=KIND,
        id=str(instance.pk),
        generation=instance.launch,
        name=instance.name,
    )


def host_of(instance: Instance) -> str:
    """The instance's own host name; it depends on the id alone (failure F42)."""
    return names.instance_host(instance.pk, instance.queue.cluster.apps_domain)


def public_host_of(instance: Instance) -> str:
    """The host as a browser's address bar has it, with the port where there is one."""
    port = instance.queue.cluster.apps_port
    return f"{host_of(instance)}:{port}" if port else host_of(instance)


def url_of(instance: Instance) -> str:
    """Where JupyterLab is."""
    return f"{instance.queue.cluster.apps_scheme}://{public_host_of(instance)}/"


def spec_of(instance: Instance) -> InstanceSpec:
    """The specification for ``kubekit``; needs queue, cluster, image, size, home and mounts loaded.

    Raises ``kubekit.errors.SpecError`` when something in the row cannot be written to a cluster.
    """
    cluster = instance.queue.cluster
    chosen = options.of(instance.options)
    mounts = [Mount(claim=instance.home.claim, path=HOME_PATH)]
    mounts += [
        Mount(claim=mount.volume.claim, path=mount.path, read_only=mount.read_only) for mount in instance.mounted
    ]
    return InstanceSpec(
        identity=identity_of(instance),
        namespace=instance.queue.namespace,
        image=instance.image.reference,
        resources=resources_of(instance.size, instance.queue, chosen.shm_bytes),
        host=host_of(instance),
        public_host=public_host_of(instance),
        portal_origin=settings.PORTAL_ORIGIN,
        mounts=tuple(mounts),
        env=chosen.environment(),
        ingress_class=cluster.ingress_class or None,
        gateway=gateway_of(cluster),
        routed=bool(ROUTE_KINDS[cluster.exposure]),
        image_pull_policy=imaging.pull_policy(instance.image, cluster),
        tools_image=imaging.tools_image(instance.image),
        placement=Placement(
            host_users=False if cluster.user_namespaces else None,
            node_selector=imaging.node_selector(instance.image, cluster),
        ),
        grace_s=GRACE_S,
        named_after=instance.named_after,
    )


def objects_of(instance: Instance) -> list[Obj]:
    """All four objects as the portal renders them now, with the key masked."""
    spec = spec_of(instance)
    secret = build.secret(spec, {})
    hidden = (
        "key",
        "ssh-host-key",
        "authorized_keys",
        *([options.SCRIPT_KEY] if instance.options.get("script") else ()),
    )
    secret["data"] = dict.fromkeys(hidden, MASK)
    replicas = 1 if instance.wants_to_run else 0
    found = [secret, build.stateful_set(spec, replicas=replicas), build.service(spec)]
    return [*found, build.route(spec)] if replicas and spec.routed else found
