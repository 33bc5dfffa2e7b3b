"""The ClusterRole of the installation, verb by verb: the portal's own work needs each, and nothing but these.

The portal's code works on the real API server with exactly that role and every request is noted. Then each verb is
taken away in turn, and the request that needed it is refused.

KUBECONFIG=… python -m pytest -m cluster tests/install/test_permissions.py
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from asgiref.sync import sync_to_async

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import access, examining, reaper
from apps.clusters import services as clusters
from apps.clusters.models import Cluster
from apps.clusters.watcher import Watcher
from apps.core import reconciling
from apps.core.actors import Actor
from apps.flows import services as flows
from apps.flows.models import Attempt
from apps.flows.states import AttemptState
from apps.instances import rotating
from apps.instances import services as instances
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.storage import services as storage
from apps.storage.states import VolumeState
from apps.tenants import checker, drift, quotas
from apps.tenants.models import Queue
from apps.tenants.quotas import Quota
from apps.tenants.states import QueueState
from kubekit import client
from kubekit import names as kube_names
from kubekit.permissions import NEEDED
from kubekit.streams import Streams
from tests.install.account import Account, look, until
from tests.install.asking import Recorder, Use, uses_of
from tests.install.installing import gateway
from tests.tenants import make

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("install")]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Of every request from now on."""
    return Recorder(monkeypatch)


@pytest.fixture
def working(recorder: Recorder, cluster: Cluster) -> tuple[Queue, Actor]:
    """A queue that stands, and somebody who works in it."""
    quota = Quota(cpu_millis=2000, memory_bytes=4 * make.GIB, storage_bytes=50 * make.GIB)
    queue = quotas.create(actor=make.actor(make.admin()), name="work", team=make.team(), cluster=cluster, quota=quota)
    look("queue", queue, QueueState.READY)
    Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
    Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
    Size.objects.create(name="small", cpu_millis=100, memory_bytes=make.GIB // 2)
    return queue, make.actor(make.user(role_in=queue.team))


def tenancy(queue: Queue) -> None:
    """Queues: looked into, corrected, made and deleted."""
    admin = make.actor(make.admin())
    checker.check(queue)
    checker.recalculate(queue)
    quotas.update(actor=admin, queue=queue, cpu_millis=1900)
    look("queue", queue, QueueState.READY)
    short = quotas.create(
        actor=admin, name="short-lived", team=queue.team, cluster=queue.cluster, quota=quotas.quota_of(queue)
    )
    look("queue", short, QueueState.READY)
    assert drift.drifted(queue.cluster) == [], "what a real server makes of the objects is what was meant"
    quotas.delete(actor=admin, queue=short)
    look("queue", short, QueueState.DELETED)


def volume(queue: Queue, actor: Actor) -> None:
    """A volume's life."""
    made = storage.create(actor=actor, queue=queue, name="data", size_bytes=make.GIB)
    look("volume", made, VolumeState.BOUND)
    storage.delete(actor=actor, volume=made)
    look("volume", made, VolumeState.DELETED)


def forget(made: Instance) -> None:
    """What the portal knew of the objects, as when a worker dies between a write and its row."""
    Instance.objects.as_system().filter(pk=made.pk).update(object_uids={}, stateful_set_uid="")
    made.refresh_from_db()


def instance(queue: Queue, actor: Actor, cluster: Cluster, *, gateway_in: str) -> None:
    """An instance's life; twice the portal loses what it knew of its objects, as in a crash.

    In the middle the cluster's instances come to be reached through a Gateway, so that both kinds of routes are made,
    looked for and removed.
    """
    made = instances.create(actor=actor, queue=queue.name, image="jupyter", size="small")
    reconciling.reconcile_one("volume", made.home_id)
    look("instance", made, InstanceState.RUNNING)
    rotating.rotate_key(actor=actor, instance=made)
    until("a new key that counts", lambda: look("instance", made, InstanceState.RUNNING) or not made.next_key)
    asyncio.run(reach(cluster, queue.namespace, kube_names.instance_pod_name(made.name, made.pk)))
    forget(made)
    admin = make.actor(make.admin())
    clusters.update(
        actor=admin, cluster=cluster, exposure="httproute", gateway_namespace=gateway_in, gateway_name="gateway"
    )
    look("instance", made, InstanceState.RUNNING)
    reaper.reap(cluster)
    instances.stop(actor=actor, instance=made)
    look("instance", made, InstanceState.STOPPED)
    forget(made)
    instances.delete(actor=actor, instance=made)
    look("instance", made, InstanceState.DELETED)


async def reach(cluster: Cluster, namespace: str, pod: str) -> None:
    """Into the pod through the API server, as SSH goes from outside the cluster."""
    credentials = await sync_to_async(access.credentials_of, thread_sensitive=False)(cluster)
    async with Streams(credentials) as streams, streams.port_forward(namespace, pod, 8888):
        pass


def task(queue: Queue, actor: Actor) -> None:
    """A run with a log."""
    node = {"name": "main", "executor": "container", "image": "python", "size": "small", "command": ["echo", "done"]}
    flow = flows.create_flow(actor=actor, document={"name": "job", "queue": queue.name, "nodes": [node]})
    run = flows.run_now(actor=actor, flow=flow)
    attempt = Attempt.objects.as_system().select_related("run", "queue").get(run=run)
    look("attempt", attempt, AttemptState.SUCCEEDED)


async def watch(cluster: Cluster, seen: Callable[[], bool]) -> None:
    """The control process' watches, until all have begun."""
    credentials = await sync_to_async(access.credentials_of, thread_sensitive=False)(cluster)
    async with await sync_to_async(Watcher, thread_sensitive=False)(cluster.pk, credentials) as watcher:
        running = asyncio.create_task(watcher.run())
        end = time.monotonic() + 60
        while not seen():
            assert time.monotonic() < end and not running.done()
            await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def check(cluster: Cluster, server: client.Cluster) -> None:
    """What the check page reads (without probes: those are pods and namespaces like any other)."""
    list(examining.Examination(server=server, cluster=cluster, spec=None, beat=lambda: None).lines())


def allowed(server: client.Cluster, use: Use) -> bool:
    """Whether the API server would let the account do it."""
    entry = next(one for one in NEEDED if (one.group, one.resource) == (use.group, use.resource))
    return server.access_review(verb=use.verb, kind=entry.kind, subresource=entry.subresource or None)


def test_each_verb_is_needed_and_none_is_missing(
    account: Account, recorder: Recorder, working: tuple[Queue, Actor], cluster: Cluster
) -> None:
    given = uses_of(account.rules)
    queue, actor = working
    gateway(account.name, namespaces={"from": "All"})
    tenancy(queue)
    volume(queue, actor)
    instance(queue, actor, cluster, gateway_in=account.name)
    task(queue, actor)
    watched = {use for use in given if use.verb == "watch"}
    asyncio.run(watch(cluster, lambda: watched <= set(recorder.first)))
    server = client.Cluster(account.credentials())
    check(cluster, server)

    assert not set(recorder.first) - given, "the portal asks for what its role does not say"
    assert not recorder.refused
    assert not [str(use) for use in sorted(given - set(recorder.first))], "in the role, but never used"
    for use in sorted(given):
        account.take_away(use)
        until(f"refused: {use}", lambda use=use: not allowed(server, use), seconds=60)
        words = recorder.first[use].refusal(server)
        assert f'cannot {use.verb} resource "{use.resource}"' in words, f"without {use}: {words}"
