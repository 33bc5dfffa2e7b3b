"""Volumes: homes at first use, data volumes, and a claim that is never silently replaced."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from apps.core import reconciling
from apps.core.errors import Conflict, Forbidden, Invalid, OverQuota
from apps.core.models import AuditEntry
from apps.storage import services, uses
from apps.storage.models import Volume, VolumeKind
from apps.storage.states import VolumeState
from apps.storage.uses import Use
from apps.tenants import ledger
from apps.tenants.models import Queue, Role
from apps.tenants.states import QueueState
from kubekit.errors import Forbidden as KubeForbidden
from tests.clusters.fake import FakeCluster
from tests.tenants import make

pytestmark = pytest.mark.django_db
GIB = make.GIB


@pytest.fixture
def queue(fake_cluster: FakeCluster) -> Queue:
    made = make.queue()
    fake_cluster.apply({"kind": "Namespace", "metadata": {"name": made.namespace}})
    return made


@pytest.fixture
def owner(queue: Queue):
    return make.user(role_in=queue.team)


def new(queue: Queue, owner, **more: object) -> Volume:
    given = {"name": "imagenet", "size_bytes": 10 * GIB, **more}
    return services.create(actor=make.actor(owner), queue=queue, **given)  # type: ignore[arg-type]


def reconcile_now(volume: Volume) -> Volume:
    assert reconciling.reconcile_one("volume", volume.pk)
    volume.refresh_from_db()
    return volume


def bind(fake: FakeCluster, capacity: str = "10Gi") -> None:
    fake.one("PersistentVolumeClaim")["status"] = {"phase": "Bound", "capacity": {"storage": capacity}}


def storage_used(queue: Queue) -> int:
    return ledger.usage(queue).shares["storage_bytes"].used


def test_a_home_is_made_at_first_use_and_found_ever_after(queue, owner) -> None:
    owner.username = "li.hua@example.org"
    owner.save()
    actor = make.actor(owner)
    home = services.ensure_home(actor=actor, queue=queue)
    assert (home.kind, home.name, home.size_bytes) == (VolumeKind.HOME, "home-li.hua-example.org", 10 * GIB)
    assert services.ensure_home(actor=actor, queue=queue).pk == home.pk
    assert storage_used(queue) == 10 * GIB


def test_a_home_takes_another_name_when_somebody_has_its_own(queue, owner) -> None:
    new(queue, owner, name=f"home-{owner.username}")
    assert services.ensure_home(actor=make.actor(owner), queue=queue).name == f"home-{owner.username}-2"


def test_a_home_that_does_not_fit_is_refused_and_nothing_is_half_made(queue, owner) -> None:
    Queue.objects.as_system().filter(pk=queue.pk).update(storage_bytes=9 * GIB)
    with pytest.raises(OverQuota) as refused:
        services.ensure_home(actor=make.actor(owner), queue=queue)
    assert refused.value.data["storage_bytes"]["missing"] == GIB
    assert not Volume.objects.as_system().exists()


def test_a_claim_is_applied_and_its_binding_makes_the_volume_ready(queue, owner, fake_cluster) -> None:
    volume = reconcile_now(new(queue, owner))
    assert (volume.state, volume.reason_code) == (VolumeState.CREATING, "volume_provisioning")
    assert volume.due_at is not None
    bind(fake_cluster)
    reconcile_now(volume)
    assert (volume.state, volume.reason, volume.due_at) == (VolumeState.BOUND, None, None)
    assert volume.claim_uid == fake_cluster.one("PersistentVolumeClaim")["metadata"]["uid"]


@pytest.mark.parametrize("by", ["class", "event"])
def test_a_claim_that_waits_for_its_first_pod_is_ready_to_mount(queue, owner, fake_cluster, by: str) -> None:
    volume = new(queue, owner)
    if by == "class":
        queue.cluster.storage_class = "late"
        queue.cluster.save()
        fake_cluster.objects["StorageClass", None, "late"] = {"volumeBindingMode": "WaitForFirstConsumer"}
    else:
        event = {"reason": "WaitForFirstConsumer", "message": "waiting for first consumer"}
        fake_cluster.objects["Event", queue.namespace, "e"] = event
    reconcile_now(volume)
    assert (volume.state, volume.reason_code) == (VolumeState.BOUND, "volume_first_use")


def test_why_there_is_no_storage_yet_is_told_in_the_clusters_words(queue, owner, fake_cluster) -> None:
    event = {"reason": "ProvisioningFailed", "message": "no space left"}
    fake_cluster.objects["Event", queue.namespace, "e"] = event
    volume = reconcile_now(new(queue, owner))
    assert volume.reason.evidence == ("ProvisioningFailed: no space left",)


def test_a_claim_that_vanished_is_told_and_never_replaced_by_an_empty_one(queue, owner, fake_cluster) -> None:
    volume = reconcile_now(new(queue, owner))
    fake_cluster.objects.pop(("PersistentVolumeClaim", queue.namespace, volume.claim))
    reconcile_now(volume)
    assert (volume.state, volume.reason_code) == (VolumeState.FAILED, "volume_gone")
    assert "PersistentVolumeClaim" not in fake_cluster.kinds()


def test_a_claim_with_another_uid_is_not_taken_for_ours(queue, owner, fake_cluster) -> None:
    volume = reconcile_now(new(queue, owner))
    fake_cluster.one("PersistentVolumeClaim")["metadata"]["uid"] = "someone-elses"
    assert reconcile_now(volume).reason_code == "volume_gone"


def test_deleting_gives_the_storage_back_only_when_the_claim_is_gone(queue, owner, fake_cluster) -> None:
    volume = reconcile_now(new(queue, owner))
    fake_cluster.finalizers.add("PersistentVolumeClaim")
    services.delete(actor=make.actor(owner), volume=volume)
    reconcile_now(volume)
    reconcile_now(volume)
    assert (volume.state, volume.reason_code) == (VolumeState.DELETING, "volume_still_mounted")
    assert storage_used(queue) == 10 * GIB
    del fake_cluster.objects["PersistentVolumeClaim", queue.namespace, volume.claim]
    reconcile_now(volume)
    assert volume.state == VolumeState.DELETED
    assert storage_used(queue) == 0
    assert new(queue, owner).pk != volume.pk


def test_a_deletion_during_a_round_is_due_even_when_its_hint_is_lost(queue, owner, fake_cluster, monkeypatch) -> None:
    volume = new(queue, owner)
    reconcile_now(volume)
    bind(fake_cluster)
    monkeypatch.setattr(reconciling, "send_hint", lambda kind, pk, **_: None)
    real = fake_cluster.get

    def get(*args: object) -> object:
        monkeypatch.setattr(fake_cluster, "get", real)
        services.delete(actor=make.actor(owner), volume=volume)
        return real(*args)

    monkeypatch.setattr(fake_cluster, "get", get)
    reconcile_now(volume)
    assert volume.state == VolumeState.DELETING
    assert volume.due_at is not None


def test_a_mounted_volume_is_not_deleted_and_the_answer_says_by_whom(queue, owner, monkeypatch) -> None:
    volume = new(queue, owner)
    monkeypatch.setattr(uses, "_finders", [lambda pk: [Use(label="instance nb")] if pk == volume.pk else []])
    with pytest.raises(Conflict) as refused:
        services.delete(actor=make.actor(owner), volume=volume)
    assert refused.value.code == "volume_in_use"
    assert "instance nb" in str(refused.value.detail)


def test_growing_reserves_and_applies_and_shrinking_is_refused(queue, owner, fake_cluster) -> None:
    volume = reconcile_now(new(queue, owner))
    bind(fake_cluster)
    reconcile_now(volume)
    services.expand(actor=make.actor(owner), volume=volume, size_bytes=20 * GIB)
    assert storage_used(queue) == 20 * GIB
    reconcile_now(volume)
    requests = fake_cluster.one("PersistentVolumeClaim")["spec"]["resources"]["requests"]
    assert requests == {"storage": "20Gi"}
    assert volume.reason_code == "volume_growing"
    bind(fake_cluster, "20Gi")
    assert reconcile_now(volume).reason is None
    with pytest.raises(Invalid) as refused:
        services.expand(actor=make.actor(owner), volume=volume, size_bytes=GIB)
    assert refused.value.code == "volume_cannot_shrink"
    with pytest.raises(OverQuota):
        services.expand(actor=make.actor(owner), volume=volume, size_bytes=200 * GIB)


def test_storage_that_cannot_grow_keeps_its_size_in_the_row_and_in_the_ledger(queue, owner, fake_cluster) -> None:
    volume = reconcile_now(new(queue, owner))
    bind(fake_cluster)
    reconcile_now(volume)
    services.expand(actor=make.actor(owner), volume=volume, size_bytes=20 * GIB)
    fake_cluster.refuse["PersistentVolumeClaim"] = KubeForbidden("only dynamically provisioned pvc can be resized")
    reconcile_now(volume)
    assert (volume.state, volume.reason_code) == (VolumeState.BOUND, "volume_grow_refused")
    assert (volume.size_bytes, storage_used(queue)) == (10 * GIB, 10 * GIB)
    entry = AuditEntry.objects.as_system().get(object_id=volume.pk, verb="volume.keep-size")
    assert entry.detail == {"size_bytes": [20 * GIB, 10 * GIB]}


def test_storage_that_cannot_grow_keeps_its_size_though_the_quota_was_lowered_below_it(
    queue, owner, fake_cluster
) -> None:
    volume = reconcile_now(new(queue, owner))
    bind(fake_cluster)
    reconcile_now(volume)
    services.expand(actor=make.actor(owner), volume=volume, size_bytes=20 * GIB)
    Queue.objects.as_system().filter(pk=queue.pk).update(storage_bytes=5 * GIB)
    fake_cluster.refuse["PersistentVolumeClaim"] = KubeForbidden("only dynamically provisioned pvc can be resized")
    reconcile_now(volume)
    assert (volume.reason_code, volume.failures) == ("volume_grow_refused", 0)
    assert (volume.size_bytes, storage_used(queue)) == (10 * GIB, 10 * GIB)


def test_a_volume_waits_for_its_queue_and_survives_a_silent_cluster(queue, owner, fake_cluster) -> None:
    Queue.objects.as_system().filter(pk=queue.pk).update(state=QueueState.CREATING)
    volume = reconcile_now(new(queue, owner))
    assert (volume.state, volume.reason_code) == (VolumeState.CREATING, "volume_waits_queue")
    assert "PersistentVolumeClaim" not in fake_cluster.kinds()
    Queue.objects.as_system().filter(pk=queue.pk).update(state=QueueState.READY)
    fake_cluster.away = True
    assert reconcile_now(volume).reason_code == "volume_cluster_silent"
    fake_cluster.away = False
    reconcile_now(volume)
    bind(fake_cluster)
    reconcile_now(volume)
    fake_cluster.away = True
    assert reconcile_now(volume).state == VolumeState.BOUND


def test_who_may_make_and_delete_volumes(queue, owner) -> None:
    volume = new(queue, owner)
    viewer, other = make.user(role_in=queue.team, role=Role.VIEWER), make.user(role_in=queue.team)
    with pytest.raises(Forbidden):
        new(queue, viewer, name="v")
    for person in (viewer, other):
        with pytest.raises(Forbidden):
            services.delete(actor=make.actor(person), volume=volume)
    services.delete(actor=make.actor(make.user(role_in=queue.team, role=Role.ADMIN)), volume=volume)


def test_names_and_sizes_that_are_refused(queue, owner) -> None:
    new(queue, owner)
    with pytest.raises(Conflict) as refused:
        new(queue, owner)
    assert refused.value.code == "name_taken"
    for name in ("a/b", "x" * 64, "", "it's", 'say "hi"', " x", "x ", "-x", "tab\tx"):
        with pytest.raises(Invalid) as bad:
            new(queue, owner, name=name)
        assert bad.value.code == "name_invalid"
    assert new(queue, owner, name="数据集 一").claim.isascii()
    for size in (0, 1 << 60):
        with pytest.raises(Invalid):
            new(queue, owner, name="y", size_bytes=size)


def test_the_same_id_again_makes_no_second_volume(queue, owner) -> None:
    pk = uuid.uuid4()
    assert new(queue, owner, id=pk).pk == new(queue, owner, id=pk).pk == pk
    assert storage_used(queue) == 10 * GIB


@pytest.mark.django_db(transaction=True)
def test_eight_first_instances_at_once_make_one_home() -> None:
    made_queue = make.queue()
    person = make.actor(make.user(role_in=made_queue.team))
    start = threading.Barrier(8)

    def first(_: int) -> uuid.UUID:
        try:
            connection.ensure_connection()
            start.wait(timeout=20)
            return services.ensure_home(actor=person, queue=made_queue).pk
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(first, range(8)))) == 1
    assert storage_used(made_queue) == 10 * GIB
