"""A queue with an owner, a colleague and a stranger, on a cluster in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import mlportal.celery  # noqa: F401 - hints go to its broker in memory
from apps.catalog.models import Image, Purpose, Size
from apps.clusters import access
from apps.clusters.models import Cluster
from apps.core import reconciling
from apps.core.actors import Actor
from apps.instances import services
from apps.instances.models import Instance
from apps.tenants.models import Queue, User
from tests.instances.fakes import InstanceCluster
from tests.tenants import make

MIB = 1 << 20


@dataclass
class World:
    """Everything a test of instances needs."""

    cluster: InstanceCluster
    queue: Queue
    owner: User
    colleague: User
    stranger: User
    image: Image
    small: Size
    large: Size

    @property
    def actor(self) -> Actor:
        """The owner as services see them."""
        return make.actor(self.owner)

    def create(self, **more: Any) -> Instance:
        """A new instance of the owner."""
        wanted = {"queue": self.queue.name, "image": self.image.name, "size": self.small.name, **more}
        return services.create(actor=wanted.pop("actor", self.actor), **wanted)

    def reconcile(self, instance: Instance) -> Instance:
        """One round of the reconciler, as a worker does it."""
        assert reconciling.reconcile_one("instance", instance.pk)
        instance.refresh_from_db()
        return instance

    def running(self, **more: Any) -> Instance:
        """An instance that has come up."""
        instance = self.create(**more)
        self.reconcile(instance)
        self.cluster.make_pod()
        self.cluster.run_pod()
        return self.reconcile(instance)


GATEWAY = {"exposure": "httproute", "gateway_namespace": "gateways", "gateway_name": "shared"}


@pytest.fixture(params=["Ingress", "HTTPRoute"])
def route(world: World, request: pytest.FixtureRequest) -> str:
    """The kind of route by which the cluster's instances are reached: the test runs once for each."""
    if request.param == "HTTPRoute":
        Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(**GATEWAY)
    return str(request.param)


@pytest.fixture
def world(db: None, monkeypatch: pytest.MonkeyPatch) -> World:
    """See ``World``."""
    cluster = InstanceCluster()
    monkeypatch.setattr(access, "connect", lambda row: cluster)
    team = make.team()
    queue = make.queue(in_team=team)
    cluster.objects["Namespace", None, queue.namespace] = {"kind": "Namespace", "metadata": {"name": queue.namespace}}
    return World(
        cluster=cluster,
        queue=queue,
        owner=make.user(role_in=team),
        colleague=make.user(role_in=team),
        stranger=make.user(role_in=make.team()),
        image=Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV),
        small=Size.objects.create(name="small", cpu_millis=500, memory_bytes=512 * MIB, position=1),
        large=Size.objects.create(name="large", cpu_millis=3000, memory_bytes=4096 * MIB, position=2),
    )
