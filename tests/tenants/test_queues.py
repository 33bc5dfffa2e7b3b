"""Queues: services with their rules, and the namespace that follows."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.clusters import services as clusters
from apps.clusters.states import ClusterState
from apps.core import claims, reconciling
from apps.core.errors import Conflict, Forbidden, Invalid
from apps.core.models import AuditEntry
from apps.tenants import drift, ledger, quotas, selectors, uses
from apps.tenants.ledger import Amount
from apps.tenants.models import Queue
from apps.tenants.quotas import Quota
from apps.tenants.states import QueueState
from kubekit.errors import Forbidden as KubeForbidden
from tests.clusters.fake import FakeCluster
from tests.tenants import make

pytestmark = pytest.mark.django_db
GIB = make.GIB
QUOTA = Quota(cpu_millis=4000, memory_bytes=8 * GIB, storage_bytes=50 * GIB, gpus={"nvidia.com/gpu": 2})


def new(**more: object) -> Queue:
    given = {"name": "vision", "team": make.team(), "cluster": make.cluster(), "quota": QUOTA, **more}
    return quotas.create(actor=make.actor(make.admin()), **given)  # type: ignore[arg-type]


def reconcile_now(queue: Queue) -> Queue:
    assert reconciling.reconcile_one("queue", queue.pk)
    queue.refresh_from_db()
    return queue


def test_a_new_queue_gets_namespace_quota_defaults_and_policies(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    assert queue.state == QueueState.READY
    assert queue.observed_generation == queue.generation == 1
    assert fake_cluster.kinds() == ["LimitRange", "Namespace", *["NetworkPolicy"] * 4, "ResourceQuota"]
    assert fake_cluster.one("Namespace")["metadata"]["name"] == queue.namespace
    hard = fake_cluster.one("ResourceQuota")["spec"]["hard"]
    assert (hard["requests.cpu"], hard["limits.memory"], hard["requests.nvidia.com/gpu"]) == ("4", "8Gi", "2")


def test_a_changed_quota_reaches_the_namespace_and_the_audit_log(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    admin = make.actor(make.admin())
    quotas.update(actor=admin, queue=queue, cpu_millis=2000, cpu_oversell=Decimal("1.5"))
    assert (queue.generation, queue.observed_generation) == (2, 1)
    reconcile_now(queue)
    assert queue.observed_generation == 2
    hard = fake_cluster.one("ResourceQuota")["spec"]["hard"]
    assert (hard["requests.cpu"], hard["limits.cpu"]) == ("2", "3")
    entry = AuditEntry.objects.as_system().get(verb="queue.quota")
    assert entry.detail == {"cpu_millis": [4000, 2000], "cpu_oversell": ["1.00", "1.5"]}


def test_whom_the_cluster_lets_in_by_now_reaches_the_policies_of_its_queues(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    clusters.update(actor=make.actor(make.admin()), cluster=queue.cluster, ingress_namespaces=["the-portals"])
    queue.refresh_from_db()
    assert (queue.generation, queue.observed_generation, queue.due_at <= timezone.now()) == (2, 1, True)
    queue = reconcile_now(Queue.objects.as_system().get(pk=queue.pk))
    policies = {one["metadata"]["name"]: one["spec"] for one in fake_cluster.list("NetworkPolicy")}
    (source,) = policies["allow-entrance"]["ingress"][0]["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "the-portals"}


def test_lowering_below_use_is_allowed_and_marks_the_queue(fake_cluster: FakeCluster) -> None:
    queue = new()
    ledger.reserve(queue_id=queue.pk, kind="thing", object_id=uuid.uuid4(), amount=Amount(cpu_millis=3000))
    quotas.update(actor=make.actor(make.admin()), queue=queue, cpu_millis=1000)
    over = ledger.usage(queue).over
    assert [(share.resource, share.used, share.limit) for share in over] == [("cpu_millis", 3000, 1000)]


def test_only_platform_administrators_make_change_and_delete_queues() -> None:
    queue = make.queue()
    member = make.actor(make.user(role_in=queue.team, role="admin"))
    for act in (
        lambda: quotas.create(actor=member, name="x", team=queue.team, cluster=queue.cluster, quota=QUOTA),
        lambda: quotas.update(actor=member, queue=queue, pods=1),
        lambda: quotas.delete(actor=member, queue=queue),
    ):
        with pytest.raises(Forbidden) as refused:
            act()
        assert refused.value.code == "admin_only"


def test_the_same_id_again_answers_the_first_queue_and_a_taken_name_is_told() -> None:
    team, cluster, pk = make.team(), make.cluster(), uuid.uuid4()
    first = new(id=pk, team=team, cluster=cluster)
    assert new(id=pk, team=team, cluster=cluster).pk == first.pk
    with pytest.raises(Conflict) as refused:
        new()
    assert (refused.value.code, list(refused.value.errors)) == ("name_taken", ["name"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu_millis", -1),
        ("memory_bytes", 1 << 63),
        ("cpu_oversell", Decimal("0.5")),
        ("gpus", {"gpu": 1}),
        ("gpus", {"nvidia.com/gpu": -1}),
        ("gpus", {"requests.nvidia.com/gpu": 1}),
    ],
)
def test_an_impossible_quota_is_refused_at_its_field(field: str, value: object) -> None:
    with pytest.raises(Invalid) as refused:
        new(quota=replace(QUOTA, **{field: value}))  # type: ignore[arg-type]
    assert list(refused.value.errors) == [field]
    assert not Queue.objects.as_system().exists()


def test_a_queue_with_something_in_it_is_not_deleted(monkeypatch) -> None:
    queue = new()
    monkeypatch.setattr(uses, "_finders", [lambda queue_id: ["instance notebook"] if queue_id == queue.pk else []])
    with pytest.raises(Conflict) as refused:
        quotas.delete(actor=make.actor(make.admin()), queue=queue)
    assert refused.value.code == "queue_not_empty"
    assert "instance notebook" in str(refused.value.detail)
    queue.refresh_from_db()
    assert queue.state == QueueState.CREATING


def test_an_open_reservation_alone_keeps_the_queue(monkeypatch) -> None:
    queue = new()
    monkeypatch.setattr(uses, "_finders", [])
    ledger.reserve(queue_id=queue.pk, kind="run", object_id=uuid.uuid4(), amount=Amount(cpu_millis=1))
    with pytest.raises(Conflict):
        quotas.delete(actor=make.actor(make.admin()), queue=queue)


def test_deletion_waits_until_the_namespace_is_gone_and_frees_the_name(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    fake_cluster.finalizers.add("Namespace")
    quotas.delete(actor=make.actor(make.admin()), queue=queue)
    for _ in range(2):
        reconcile_now(queue)
        assert queue.state == QueueState.DELETING
        assert queue.reason_code == "queue_namespace_ending"
        assert queue.due_at is not None
    assert [call for call in fake_cluster.calls if call[0] == "delete"] == [("delete", "Namespace")]
    del fake_cluster.objects["Namespace", None, queue.namespace]
    reconcile_now(queue)
    assert queue.state == QueueState.DELETED
    assert new().pk != queue.pk


def test_a_namespace_of_somebody_else_is_never_deleted(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    fake_cluster.one("Namespace")["metadata"]["labels"]["mlportal.io/install"] = "other"
    quotas.delete(actor=make.actor(make.admin()), queue=queue)
    reconcile_now(queue)
    assert queue.reason_code == "queue_namespace_foreign"
    assert ("delete", "Namespace") not in fake_cluster.calls


def test_a_silent_cluster_leaves_the_queue_creating_with_a_reason_and_a_next_look(fake_cluster: FakeCluster) -> None:
    fake_cluster.away = True
    queue = reconcile_now(new())
    assert (queue.state, queue.reason_code) == (QueueState.CREATING, "queue_cluster_silent")
    assert queue.due_at > timezone.now()
    assert queue.cluster.name in queue.reason.sentence
    fake_cluster.away = False
    assert reconcile_now(queue).state == QueueState.READY
    assert queue.reason is None


def test_a_silent_cluster_does_not_unready_a_ready_queue(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    fake_cluster.away = True
    assert reconcile_now(queue).state == QueueState.READY


def test_a_refusal_names_the_part_and_heals_by_itself(fake_cluster: FakeCluster) -> None:
    fake_cluster.refuse["LimitRange"] = KubeForbidden("may not", status=403)
    queue = reconcile_now(new())
    assert (queue.state, queue.reason_code) == (QueueState.FAILED, "queue_refused")
    assert queue.reason_params["part"] == "LimitRange queue"
    assert queue.reason.evidence == ("may not",)
    fake_cluster.refuse.clear()
    assert reconcile_now(queue).state == QueueState.READY


def test_what_somebody_deletes_by_hand_comes_back(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    assert queue.due_at is None, "by itself it costs nothing"
    assert drift.drifted(queue.cluster) == []
    del fake_cluster.objects["ResourceQuota", queue.namespace, "queue"]
    assert drift.drifted(queue.cluster) == [queue.pk]
    reconcile_now(queue)
    assert "ResourceQuota" in fake_cluster.kinds()
    assert drift.drifted(queue.cluster) == []


@pytest.mark.parametrize(
    ("kind", "name", "edit", "matters"),
    [
        ("ResourceQuota", "queue", lambda obj: obj["spec"]["hard"].update({"pods": "9999"}), True),
        ("ResourceQuota", "queue", lambda obj: obj["spec"]["hard"].pop("requests.storage"), True),
        ("ResourceQuota", "queue", lambda obj: obj["spec"]["hard"].update({"limits.memory": "8192Mi"}), False),
        ("ResourceQuota", "queue", lambda obj: obj["spec"]["hard"].update({"count/secrets": "9"}), False),
        ("ResourceQuota", "queue", lambda obj: obj.update(status={"used": {"pods": "3"}}), False),
        ("LimitRange", "queue", lambda obj: obj["spec"]["limits"].append({"type": "Pod"}), True),
        ("LimitRange", "queue", lambda obj: obj["spec"]["limits"][0].update(max={"cpu": "1"}), False),
        (
            "NetworkPolicy",
            "default-deny",
            lambda obj: obj["spec"].update(podSelector={"matchLabels": {"a": "b"}}),
            True,
        ),
        ("NetworkPolicy", "default-deny", lambda obj: obj["spec"].pop("podSelector"), False),
        ("NetworkPolicy", "allow-dns", lambda obj: obj["spec"]["egress"][0].pop("ports"), True),
        ("Namespace", "", lambda obj: obj["metadata"]["labels"].pop("pod-security.kubernetes.io/enforce"), True),
        ("Namespace", "", lambda obj: obj["metadata"]["labels"].update({"team": "vision"}), False),
        ("Namespace", "", lambda obj: obj.update(spec={"finalizers": ["kubernetes"]}), False),
    ],
)
def test_what_somebody_edits_by_hand_is_found_and_what_a_server_adds_is_not(
    fake_cluster: FakeCluster, kind: str, name: str, edit: Callable[[dict[str, Any]], Any], matters: bool
) -> None:
    queue = reconcile_now(new())
    found = next(
        obj
        for (of_kind, _namespace, named), obj in fake_cluster.objects.items()
        if of_kind == kind and named == (name or queue.namespace)
    )
    edit(found)
    assert drift.drifted(queue.cluster) == ([queue.pk] if matters else [])


def test_many_queues_are_compared_with_four_lists(fake_cluster: FakeCluster, hints: list[Any]) -> None:
    cluster = make.cluster()
    queues = [reconcile_now(new(name=f"queue-{number}", cluster=cluster)) for number in range(5)]
    type(cluster).objects.as_system().update(state=ClusterState.CONNECTED)
    del fake_cluster.objects["LimitRange", queues[3].namespace, "queue"]
    fake_cluster.calls.clear()
    hints.clear()
    drift.look()
    assert sorted(fake_cluster.calls) == [
        ("list", kind) for kind in ("LimitRange", "Namespace", "NetworkPolicy", "ResourceQuota")
    ]
    assert [hint.args for hint in hints] == [("queue", str(queues[3].pk))]
    fake_cluster.away = True
    hints.clear()
    drift.look()
    assert hints == []


def test_a_change_during_a_workers_round_is_looked_at_again_without_its_hint(fake_cluster: FakeCluster) -> None:
    queue = reconcile_now(new())
    admin = make.actor(make.admin())
    for change in (
        lambda: quotas.update(actor=admin, queue=queue, pods=queue.pods + 1),
        lambda: quotas.recalculate(actor=admin, queue=queue),
        lambda: quotas.delete(actor=admin, queue=queue),
    ):
        claim = claims.take(Queue, queue.pk)
        assert claim is not None
        change()
        assert claims.release(Queue, claim, due_at=None) is True
        queue.refresh_from_db()
        assert queue.due_at is not None
        assert queue.due_at <= timezone.now()


def test_only_queues_of_ones_teams_that_stay_can_be_chosen_everywhere() -> None:
    team = make.team()
    person = make.user(role_in=team)
    stays = make.queue(in_team=team, name="b-stays")
    failed = make.queue(in_team=team, name="a-failed", state=QueueState.FAILED)
    for state in (QueueState.DELETING, QueueState.DELETED):
        make.queue(in_team=team, state=state)
    make.queue()
    assert list(selectors.usable_queues(make.actor(person))) == [failed, stays]
    signed_in = Client()
    signed_in.force_login(person)
    for address in ("/instances", "/volumes", "/flows", "/runs"):
        page = signed_in.get(address).content.decode()
        assert ">a-failed" in page, address
