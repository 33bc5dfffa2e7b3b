"""Causes provoked on a real localkube; the sentence is read from the instance's page."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Iterator
from dataclasses import dataclass
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
from kubekit.client import Cluster as KubeCluster
from kubekit.errors import NotFound
from tests.instances.provoking import Localkube, follow, localkube
from tests.tenants import make

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.xdist_group("localkube")]
S = InstanceState
MIB = 1 << 20


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Localkube]:
    with localkube(tmp_path_factory.mktemp("provoked")) as running:
        yield running


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
def stage(kube: Localkube, settings: Any) -> Iterator[Stage]:
    cache.clear()
    settings.DEFAULT_HOME_BYTES = 16 * MIB
    team = make.team()
    owner = make.user(role_in=team)
    queue = make.queue(in_team=team, on=make.cluster(**kube.columns()), cpu_millis=8000, memory_bytes=64 << 30)
    reconciling.reconcile_one("queue", queue.pk)
    Size.objects.create(name="tiny", cpu_millis=100, memory_bytes=64 * MIB)
    Size.objects.create(name="huge", cpu_millis=7000, memory_bytes=128 * MIB)
    client = Client()
    client.force_login(owner)
    yield Stage(queue, owner, client)
    with contextlib.suppress(NotFound):
        access.connect(queue.cluster).delete("Namespace", None, queue.namespace)
    access.forget(queue.cluster_id)


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


def test_image_not_found(stage: Stage) -> None:
    instance = follow(stage.create("nobody/nothing:9"), lambda row: row.state == S.FAILED)
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


def test_credentials_refused(stage: Stage) -> None:
    cluster = stage.queue.cluster
    instance = follow(stage.create(), lambda row: row.state == S.RUNNING)
    good = cluster.credentials
    cluster.credentials = good.reveal().replace('"token": "', '"token": "not-')
    cluster.save()
    follow(instance, code_is("cluster_unauthorized"))
    assert instance.state == S.UNREACHABLE
    stage.shows(instance, "cluster_unauthorized", "no longer accepts")
    cluster.credentials = good
    cluster.save()
    follow(instance, lambda row: row.state == S.RUNNING)


def test_node_lost(stage: Stage) -> None:
    """A node with nobody behind it: this test plays its kubelet, then falls silent."""
    kube = stage.kube
    real = next(kube.list("Node"))
    kube.patch_merge("Node", None, real["metadata"]["name"], {"spec": {"unschedulable": True}})
    try:
        kube.create({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "ghost"},
            "status": {**{k: real["status"][k] for k in ("capacity", "allocatable")}, "conditions": [ready("True")]},
        })  # fmt: skip
        instance = stage.create()
        follow(instance, lambda row: row.node == "ghost")
        name = next(kube.list("Pod", stage.queue.namespace))["metadata"]["name"]
        running = {"name": "main", "ready": True, "restartCount": 0, "image": "x", "imageID": "x",
                   "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}  # fmt: skip
        status = {"phase": "Running", "conditions": [ready("True")], "containerStatuses": [running]}
        kube.patch_merge("Pod", stage.queue.namespace, name, {"status": status}, subresource="status")
        follow(instance, lambda row: row.state == S.RUNNING)
        kube.patch_merge("Node", None, "ghost", {"status": {"conditions": [ready("Unknown")]}}, subresource="status")
        follow(instance, code_is("node_lost"))
        assert instance.state == S.UNREACHABLE
        stage.shows(instance, "node_lost", "The node ghost has stopped answering")
    finally:
        kube.patch_merge("Node", None, real["metadata"]["name"], {"spec": {"unschedulable": None}})
        kube.delete("Node", None, "ghost")


def ready(status: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}


def test_cluster_not_answering_and_back(tmp_path: Path, settings: Any, stage: Stage) -> None:
    with localkube(tmp_path) as other:
        cluster = make.cluster(**other.columns())
        queue = make.queue(in_team=stage.queue.team, on=cluster)
        reconciling.reconcile_one("queue", queue.pk)
        away = Stage(queue, stage.owner, stage.client)
        instance = follow(away.create(), lambda row: row.state == S.RUNNING)
        other.stop()
        follow(instance, code_is("cluster_unreachable"))
        assert instance.state == S.UNREACHABLE
        away.shows(instance, "cluster_unreachable", "The cluster does not answer.", "tries again by itself")
    access.forget(cluster.pk)
