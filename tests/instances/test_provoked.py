"""Causes provoked on localkube and on a real cluster; the same sentence is read from the instance's page."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import access
from apps.core import reconciling
from apps.instances import services
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.storage.models import Volume
from apps.tenants.models import Queue, User
from kubekit.build import instance as instance_manifests
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import NotFound, QuotaExceeded
from tests.conformance.queues import missing, wait_for
from tests.conformance.servers import KUBERNETES, LOCALKUBE, Api, PlayedNode, Space
from tests.instances.provoking import Localkube, RealCluster, columns_of, follow, localkube
from tests.tenants import make

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.xdist_group("localkube")]
Provoked = Localkube | RealCluster
S = InstanceState
MIB = 1 << 20


@pytest.fixture(scope="module", params=[LOCALKUBE, pytest.param(KUBERNETES, marks=pytest.mark.cluster)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provoked]:
    if request.param == KUBERNETES:
        yield RealCluster()
        return
    with localkube(tmp_path_factory.mktemp("provoked")) as running:
        yield running


@pytest.fixture
def changes(server: Provoked, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a test does to each StatefulSet before it is sent, besides what the cluster under test needs."""
    wanted: list[Any] = [server.written]
    build = instance_manifests.stateful_set

    def stateful_set(spec: Any, *, replicas: int) -> Any:
        made = build(spec, replicas=replicas)
        for change in wanted:
            change(made)
        return made

    monkeypatch.setattr(instance_manifests, "stateful_set", stateful_set)
    return wanted


@dataclass
class Stage:
    """A queue on that localkube, with an owner."""

    queue: Queue
    owner: User
    client: Client

    @property
    def kube(self) -> KubeCluster:
        return access.connect(self.queue.cluster)

    def create(self, image: str = "answers", size: str = "tiny") -> Instance:
        if not Image.objects.as_system().filter(name=image).exists():
            reference = image if "/" in image else f"test/{image}:1"
            Image.objects.create(name=image, reference=reference, purpose=Purpose.DEV)
        made = services.create(actor=make.actor(self.owner), queue=self.queue.name, image=image, size=size)
        reconciling.reconcile_one("volume", made.home_id)
        return made

    def told(self, instance: Instance) -> str:
        """The page's text."""
        answer = self.client.get(f"/instances/{instance.pk}")
        assert answer.status_code == 200
        return html.unescape(answer.content.decode())

    def shows(self, instance: Instance, code: str, *words: str) -> None:
        """The page's banner has this code and, in its sentence or evidence, these words."""
        text = self.told(instance)
        assert f'data-reason="{code}"' in text
        banner = text.partition(f'data-reason="{code}"')[2].partition("</div>\n")[0]
        for word in words:
            assert word in banner, banner


@pytest.fixture
def stage(server: Provoked, changes: list[Any], settings: Any) -> Iterator[Stage]:
    cache.clear()
    settings.DEFAULT_HOME_BYTES = 16 * MIB
    team = make.team()
    owner = make.user(role_in=team)
    queue = make.queue(
        in_team=team, on=make.cluster(**columns_of(server.credentials)), cpu_millis=2_000_000, memory_bytes=64 << 30
    )
    reconciling.reconcile_one("queue", queue.pk)
    Size.objects.create(name="tiny", cpu_millis=100, memory_bytes=64 * MIB)
    Size.objects.create(name="huge", cpu_millis=1_900_000, memory_bytes=128 * MIB)
    client = Client()
    client.force_login(owner)
    yield Stage(queue, owner, client)
    with contextlib.suppress(NotFound):
        access.connect(queue.cluster).delete("Namespace", None, queue.namespace)
    access.forget(queue.cluster_id)


def refuses_pods(stage: Stage) -> bool:
    container = {"name": "main", "image": "x", "resources": {"limits": {"cpu": "1m", "memory": "1Mi"}}}
    metadata = {"name": "asked", "namespace": stage.queue.namespace}
    try:
        stage.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                           "spec": {"containers": [container]}}, dry_run=True)  # fmt: skip
    except QuotaExceeded:
        return True
    return False


def code_is(code: str) -> Any:
    return lambda instance: instance.reason_code == code


def test_it_runs_stops_and_is_gone(stage: Stage) -> None:
    instance = follow(stage.create(), lambda row: row.state == S.RUNNING)
    assert set(instance.stages) == {"scheduled", "volume", "image", "started", "ready"}
    services.stop(actor=make.actor(stage.owner), instance=instance)
    follow(instance, lambda row: row.state == S.STOPPED)
    services.delete(actor=make.actor(stage.owner), instance=instance)
    follow(instance, lambda row: row.state == S.DELETED)
    left = [obj for kind in ("StatefulSet", "Service", "Ingress", "Secret", "Pod")
            for obj in stage.kube.list(kind, stage.queue.namespace)]  # fmt: skip
    assert left == []


def test_image_not_found(server: Provoked, stage: Stage) -> None:
    """A cluster without a way out cannot tell a missing image from a missing registry, and says so."""
    told = ("image_not_found", "registry_unreachable") if server.kind == KUBERNETES else ("image_not_found",)
    instance = follow(stage.create("nobody/nothing:9"), lambda row: row.reason_code in told)
    if instance.reason_code == "registry_unreachable":
        stage.shows(instance, "registry_unreachable", "nobody/nothing:9")
        return
    assert instance.state == S.FAILED
    stage.shows(instance, "image_not_found", "The image “nobody/nothing:9” was not found.", "Check the tag")


def test_image_name_invalid(stage: Stage) -> None:
    instance = follow(stage.create("Not/An Image"), lambda row: row.state == S.FAILED)
    stage.shows(instance, "image_name_invalid", "is not the name of an image")


def test_crashed_at_start(stage: Stage) -> None:
    instance = follow(stage.create("crashes"), code_is("crashed_at_start"))
    stage.shows(instance, "crashed_at_start", "exit code 3", "ModuleNotFoundError: torch")


def test_out_of_memory(stage: Stage) -> None:
    instance = follow(stage.create("hungry"), code_is("out_of_memory"))
    stage.shows(instance, "out_of_memory", "used more memory than its size allows (64Mi)", "larger size")


def test_volume_full(stage: Stage) -> None:
    instance = follow(stage.create("fills"), code_is("volume_full"))
    stage.shows(instance, "volume_full", "A volume is full", "No space left on device")
    assert instance.state == S.FAILED


def test_command_not_found(stage: Stage) -> None:
    instance = follow(stage.create("nothing"), code_is("command_not_found"))
    stage.shows(instance, "command_not_found", "The command does not exist in the image.")


def test_no_node_fits(stage: Stage) -> None:
    instance = follow(stage.create(size="huge"), code_is("no_node_cpu"))
    assert instance.state == S.QUEUED
    stage.shows(instance, "no_node_cpu", "No node has enough free CPU.", "Insufficient cpu")


def test_quota(stage: Stage) -> None:
    quota = next(stage.kube.list("ResourceQuota", stage.queue.namespace))
    hard = {"spec": {"hard": {**quota["spec"]["hard"], "pods": "0"}}}
    stage.kube.patch_merge("ResourceQuota", stage.queue.namespace, quota["metadata"]["name"], hard)
    wait_for(lambda: refuses_pods(stage))  # what admission remembers may be a moment old
    instance = follow(stage.create(), code_is("quota_exceeded"))
    assert instance.state == S.QUEUED
    stage.shows(instance, "quota_exceeded", "leaves no room", "exceeded quota")


def test_volume_not_bound(stage: Stage) -> None:
    stage.queue.cluster.storage_class = "nobody-has-it"
    stage.queue.cluster.save()
    instance = follow(stage.create(), code_is("volume_not_bound"))
    stage.shows(instance, "volume_not_bound", "no storage behind it")


def test_volume_missing(stage: Stage) -> None:
    instance = stage.create()
    home = Volume.objects.as_system().get(pk=instance.home_id)
    follow(instance, lambda row: row.state == S.RUNNING)
    services.stop(actor=make.actor(stage.owner), instance=instance)
    follow(instance, lambda row: row.state == S.STOPPED)
    stage.kube.delete("PersistentVolumeClaim", stage.queue.namespace, home.claim)
    wait_for(lambda: missing(stage.kube, stage.queue.namespace, home.claim, kind="PersistentVolumeClaim"))
    services.start(actor=make.actor(stage.owner), instance=instance)
    follow(instance, code_is("volume_missing"))
    stage.shows(instance, "volume_missing", "does not exist in the cluster", home.claim)


def test_start_time_out(stage: Stage, settings: Any) -> None:
    settings.PORTAL_START_TIMEOUT_S = 4
    instance = follow(stage.create("silent"), lambda row: row.state == S.FAILED)
    assert instance.reason_code in {"start_timeout", "not_answering"}
    stage.shows(instance, instance.reason_code, "answer" if instance.reason_code == "not_answering" else "4 seconds")


def test_namespace_terminating(stage: Stage) -> None:
    holding = {"metadata": {"finalizers": ["test.example/hold"]}}
    instance = stage.create()
    claim = instance.home.claim
    stage.kube.patch_merge("PersistentVolumeClaim", stage.queue.namespace, claim, holding)
    stage.kube.delete("Namespace", None, stage.queue.namespace)
    follow(instance, code_is("namespace_terminating"))
    stage.shows(instance, "namespace_terminating", "is being deleted")
    stage.kube.patch_merge("PersistentVolumeClaim", stage.queue.namespace, claim, {"metadata": {"finalizers": None}})


def test_config_missing(stage: Stage) -> None:
    instance = follow(stage.create(), lambda row: row.state == S.RUNNING)
    name = next(stage.kube.list("StatefulSet", stage.queue.namespace))["metadata"]["name"]
    stage.kube.delete("Secret", stage.queue.namespace, name)
    stage.kube.delete("Pod", stage.queue.namespace, f"{name}-0", grace_s=0)
    follow(instance, code_is("config_missing"))
    stage.shows(instance, "config_missing", f"secret {name}", "Start it again")


def test_credentials_refused(server: Provoked, stage: Stage) -> None:
    cluster = stage.queue.cluster
    instance = follow(stage.create(), lambda row: row.state == S.RUNNING)
    good = cluster.credentials
    stranger = replace(server.credentials, token="nobody's", client_cert=None, client_key=None)
    cluster.credentials = access.pack(stranger)
    cluster.save()
    follow(instance, code_is("cluster_unauthorized"))
    assert instance.state == S.UNREACHABLE
    stage.shows(instance, "cluster_unauthorized", "no longer accepts")
    cluster.credentials = good
    cluster.save()
    follow(instance, lambda row: row.state == S.RUNNING)


def test_node_lost(server: Provoked, stage: Stage, changes: list[Any]) -> None:
    """A node with nobody behind it: this test plays its kubelet, then falls silent."""
    node = PlayedNode(Api(server.credentials))
    try:
        changes.append(lambda made: made["spec"]["template"]["spec"].update(node.placement))
        instance = follow(stage.create(), lambda row: row.node == node.name)
        name = next(stage.kube.list("Pod", stage.queue.namespace))["metadata"]["name"]
        node.runs(Space(stage.queue.namespace), name)
        follow(instance, lambda row: row.state == S.RUNNING)
        if server.kind == LOCALKUBE:
            node.says("Unknown")  # a real server says so itself, 50 seconds after a node's last word
        follow(instance, code_is("node_lost"))
        assert instance.state == S.UNREACHABLE
        stage.shows(instance, "node_lost", f"The node {node.name} has stopped answering")
    finally:
        node.remove()


def test_cluster_not_answering(server: Provoked, tmp_path: Path, stage: Stage) -> None:
    with server.breakable(tmp_path) as (credentials, stop):
        cluster = make.cluster(**columns_of(credentials))
        queue = make.queue(in_team=stage.queue.team, on=cluster)
        reconciling.reconcile_one("queue", queue.pk)
        away = Stage(queue, stage.owner, stage.client)
        instance = follow(away.create(), lambda row: row.state == S.RUNNING)
        stop()
        follow(instance, code_is("cluster_unreachable"))
        assert instance.state == S.UNREACHABLE
        away.shows(instance, "cluster_unreachable", "The cluster does not answer.", "tries again by itself")
    access.forget(cluster.pk)
    with contextlib.suppress(NotFound):
        stage.kube.delete("Namespace", None, queue.namespace)
