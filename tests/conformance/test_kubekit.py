"""What kubekit makes of both servers' answers: whole queues and instances, its errors, its list and watch."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from kubekit.build import claim, instance, queue, task
from kubekit.client import Cluster
from kubekit.credentials import Credentials, parse_kubeconfig
from kubekit.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NamespaceTerminating,
    NotFound,
    QuotaExceeded,
)
from kubekit.listwatch import ListWatch
from kubekit.specs import Mount, QueueSpec, Resources
from kubekit.streams import Streams
from tests.conformance.queues import attempt, free, missing, row, wait_for
from tests.conformance.servers import Server
from tests.kubekit.samples import GIB, claim_spec, instance_spec, queue_spec


@pytest.fixture(scope="module")
def credentials(server: Server) -> Credentials:
    return parse_kubeconfig(server.kubeconfig)


@pytest.fixture(scope="module")
def cluster(credentials: Credentials) -> Iterator[Cluster]:
    found = Cluster(credentials)
    yield found
    found.close()


@pytest.fixture
async def streams(credentials: Credentials) -> AsyncIterator[Streams]:
    async with Streams(credentials) as found:
        yield found


@pytest.fixture
def team(cluster: Cluster) -> Iterator[QueueSpec]:
    """A queue with all its objects applied, removed afterwards."""
    spec = queue_spec(identity=row("queue", "conformance"), pods=2, claims=2, storage_bytes=GIB)
    for obj in queue.objects(spec):
        cluster.apply(obj)
    wait_for(lambda: cluster.get("ResourceQuota", spec.namespace, "queue").get("status", {}).get("hard"))
    yield spec
    for pod in list(cluster.list("Pod", spec.namespace)):
        free(cluster, pod)
    cluster.delete("Namespace", None, spec.namespace)


def test_the_version_is_told(cluster: Cluster) -> None:
    assert int(cluster.version()["major"]) >= 1


def test_every_object_of_a_queue_is_taken_and_applying_it_again_changes_nothing(
    cluster: Cluster, team: QueueSpec
) -> None:
    for obj in queue.objects(team):
        before = cluster.get(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
        after = cluster.apply(obj)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        if obj["kind"] not in ("ResourceQuota", "Namespace"):
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], obj["kind"]
    hard = cluster.get("ResourceQuota", team.namespace, "queue")["spec"]["hard"]
    assert hard == queue.hard_limits(team)


def test_every_object_of_an_instance_is_taken(cluster: Cluster, team: QueueSpec) -> None:
    home = claim_spec(identity=row("volume", "home"), namespace=team.namespace, storage_bytes=GIB // 2)
    cluster.apply(claim.claim(home))
    spec = instance_spec(
        identity=row("instance", "我的/notebook"), namespace=team.namespace, image="conformance/never:1",
        mounts=(Mount(claim=home.object_name, path="/root"),),
    )  # fmt: skip
    written = [
        instance.secret(spec, {"key": "k" * 40}),
        instance.stateful_set(spec, replicas=0),
        instance.service(spec),
        instance.ingress(spec),
    ]
    for obj in written:
        stored = cluster.apply(obj)
        again = cluster.apply(obj)
        assert stored["metadata"]["uid"] == again["metadata"]["uid"]
        assert again["metadata"]["labels"] == obj["metadata"]["labels"]
        # A controller may have written the status in between; what was applied is as it was.
        for found in (stored, again):
            found.pop("status", None)
            found["metadata"].pop("resourceVersion")
            found["metadata"].pop("managedFields")
        assert again == stored
    route = cluster.get("Ingress", team.namespace, spec.object_name)
    assert not route["metadata"].get("annotations")
    assert cluster.scale(team.namespace, spec.object_name, 0)["spec"].get("replicas", 0) == 0
    cluster.delete("Ingress", team.namespace, spec.object_name, uid=route["metadata"]["uid"])
    with pytest.raises(NotFound):
        cluster.get("Ingress", team.namespace, spec.object_name)


def test_a_second_manager_is_a_conflict_unless_forced(cluster: Cluster, team: QueueSpec) -> None:
    spec = instance_spec(identity=row("instance", "two"), namespace=team.namespace, mounts=())
    cluster.apply(instance.stateful_set(spec, replicas=0))
    cluster.scale(team.namespace, spec.object_name, 0)
    other = instance.stateful_set(spec, replicas=0)
    other["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7
    cluster._json(
        "PATCH", f"/apis/apps/v1/namespaces/{team.namespace}/statefulsets/{spec.object_name}",
        {"fieldManager": "somebody", "force": "true"}, body=other, content_type="application/apply-patch+yaml",
    )  # fmt: skip
    with pytest.raises(Conflict) as caught:
        cluster.apply(instance.stateful_set(spec, replicas=0), force=False)
    assert "somebody" in caught.value.message
    assert cluster.apply(instance.stateful_set(spec, replicas=0))["kind"] == "StatefulSet"


def test_an_attempt_is_created_once_and_kept_by_its_finalizer(cluster: Cluster, team: QueueSpec) -> None:
    pod = task.task_pod(attempt(team))
    made = cluster.create(pod)
    with pytest.raises(AlreadyExists):
        cluster.create(pod)
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    with pytest.raises(Conflict):
        cluster.delete("Pod", team.namespace, name, uid=str(uuid.uuid4()))
    cluster.delete("Pod", team.namespace, name, uid=uid, grace_s=0)
    kept = cluster.get("Pod", team.namespace, name)
    assert kept["metadata"]["deletionTimestamp"]
    free(cluster, kept)
    wait_for(lambda: missing(cluster, team.namespace, name))


def test_the_quota_refuses_with_its_figures_also_in_a_dry_run(cluster: Cluster, team: QueueSpec) -> None:
    big = attempt(team, resources=Resources(cpu_millis=8000, memory_bytes=GIB))
    for dry_run in (True, False):
        with pytest.raises(QuotaExceeded) as caught:
            cluster.create(task.task_pod(big), dry_run=dry_run)
        assert caught.value.quota == "queue"
        assert caught.value.requested["requests.cpu"] == "8"
        assert caught.value.limited["requests.cpu"] == "4"


def test_every_quota_key_binds(cluster: Cluster, team: QueueSpec) -> None:
    """A key that is stored and not counted shows no ``used``: the silent hole of ``limits.nvidia.com/gpu``."""
    rich = queue_spec(identity=team.identity, gpus={"nvidia.com/gpu": 2}, extra_quota={"count/jobs.batch": 3})
    cluster.apply(queue.resource_quota(rich))
    wanted = set(queue.hard_limits(rich))
    wait_for(lambda: wanted <= set(cluster.get("ResourceQuota", team.namespace, "queue")["status"].get("used", {})))


def test_an_invalid_object_names_its_fields(cluster: Cluster, team: QueueSpec) -> None:
    spec = instance_spec(identity=row("instance", "bad"), namespace=team.namespace, mounts=())
    cluster.apply(instance.stateful_set(spec, replicas=0))
    changed = instance.stateful_set(spec, replicas=0)
    changed["spec"]["serviceName"] = "another"
    with pytest.raises(Invalid):
        cluster.apply(changed)


def test_lists_come_page_by_page_and_by_label(cluster: Cluster, team: QueueSpec) -> None:
    for number in range(5):
        cluster.apply({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": f"c{number}", "namespace": team.namespace, "labels": {"n": str(number % 2)}},
        })  # fmt: skip
    even = list(cluster.list("ConfigMap", team.namespace, labels={"n": "0"}, limit=2))
    assert [item["metadata"]["name"] for item in even] == ["c0", "c2", "c4"]
    assert {item["kind"] for item in even} == {"ConfigMap"}


def test_a_namespace_on_its_way_out_takes_nothing_new(cluster: Cluster) -> None:
    name = f"conformance-{uuid.uuid4().hex[:8]}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    held = {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "namespace": name, "finalizers": ["mlportal.io/hold"]}}  # fmt: skip
    cluster.create(held)
    cluster.delete("Namespace", None, name)
    with pytest.raises(NamespaceTerminating):
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": name}})
    cluster.patch_merge("ConfigMap", name, "held", {"metadata": {"finalizers": None}})


def test_a_missing_namespace_is_told_from_a_missing_object(cluster: Cluster) -> None:
    with pytest.raises(NotFound) as caught:
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "nowhere"}})
    assert caught.value.details["kind"] == "namespaces"


def test_a_privileged_pod_is_refused_by_pod_security(server: Server, cluster: Cluster, team: QueueSpec) -> None:
    pod = task.task_pod(attempt(team))
    pod["spec"]["hostNetwork"] = True
    try:
        cluster.create(pod)
        refused = ""
    except Forbidden as error:
        refused = error.code
    listed = "Pod Security levels are labels that refuse nothing"
    assert refused == server.own(listed, localkube="", kubernetes="pod_security")


async def test_list_watch_follows_over_the_end_of_its_watch(
    cluster: Cluster, streams: Streams, team: QueueSpec
) -> None:
    seen: list[tuple[str, str]] = []
    found = ListWatch(
        streams, "ConfigMap", team.namespace, labels={"w": "1"}, watch_s=2, first_delay_s=0.05,
        on_sync=lambda items: seen.extend(("SYNC", item["metadata"]["name"]) for item in items),
        on_event=lambda kind, obj: seen.append((kind, obj["metadata"]["name"])),
    )  # fmt: skip
    config = {"apiVersion": "v1", "kind": "ConfigMap",
              "metadata": {"name": "first", "namespace": team.namespace, "labels": {"w": "1"}}}  # fmt: skip
    await asyncio.to_thread(cluster.apply, config)
    running = asyncio.create_task(found.run())
    try:
        await asyncio.wait_for(found.synced.wait(), 60)
        await asyncio.sleep(2.5)  # over the end of the first watch
        second = {**config, "metadata": {**config["metadata"], "name": "second"}}
        await asyncio.to_thread(cluster.apply, second)
        await asyncio.to_thread(cluster.apply, {**second, "data": {"a": "1"}})
        await asyncio.to_thread(cluster.delete, "ConfigMap", team.namespace, "second")
        async with asyncio.timeout(60):
            while ("DELETED", "second") not in seen:  # noqa: ASYNC110 - the list grows in a callback
                await asyncio.sleep(0.05)
    finally:
        running.cancel()
    assert seen == [("SYNC", "first"), ("ADDED", "second"), ("MODIFIED", "second"), ("DELETED", "second")]
    assert found.last_error is None
