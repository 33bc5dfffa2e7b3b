"""The check on a real cluster, by an account that may do what the list names and nothing else.

KUBECONFIG=… MLPORTAL_TEST_NETWORK_POLICY=enforced|stored python -m pytest -m cluster tests/clusters

The variable says what the cluster does with network policies, so that the verdict of the probe can be held against it;
without it the test of the verdict fails. The cluster's nodes must have the image ``mlportal/python:1``.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import access, checks, contact, installation, services
from apps.clusters.models import Cluster, ClusterCheck
from apps.core import reconciling
from apps.instances import services as instances
from apps.instances.models import Instance
from apps.tenants import quotas
from apps.tenants.models import Queue
from apps.tenants.quotas import Quota
from kubekit import client, names
from kubekit.credentials import parse_kubeconfig
from kubekit.errors import NotFound
from tests.clusters.account import Account
from tests.tenants import make

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]
PATIENCE_S = 120.0
GIB = make.GIB


def until(what: str, look: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"still no {what}"
        time.sleep(0.3)
    return found


@pytest.fixture
def server() -> Iterator[client.Cluster]:
    found = client.Cluster(parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8")))
    yield found
    found.close()


@pytest.fixture
def account(server: client.Cluster) -> Iterator[Account]:
    with Account(server) as made:
        yield made


@pytest.fixture
def cluster(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    install = f"t{uuid.uuid4().hex[:10]}"
    installation.install_id.cache_clear()
    monkeypatch.setattr(installation, "secrets", type("S", (), {"token_hex": staticmethod(lambda n: install[1:])}))
    Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
    made = services.register(
        actor=make.actor(make.admin()),
        name="real",
        kubeconfig=account.kubeconfig,
        trusted=True,
        apps_domain="apps.localhost",
    )
    contact.note_connected(made.pk)
    made.refresh_from_db()
    yield made
    access.forget(made.pk)
    installation.install_id.cache_clear()


def carry_out(cluster: Cluster) -> ClusterCheck:
    row = services.check(actor=make.actor(make.admin()), cluster=cluster)
    assert reconciling.reconcile_one(checks.KIND, row.pk)
    row.refresh_from_db()
    cluster.refresh_from_db()
    assert row.state == "succeeded"
    return row


def lines(row: ClusterCheck, topic: str) -> list[dict[str, Any]]:
    return [line for line in row.lines if line["topic"] == topic]


def test_the_listed_permissions_are_enough_for_the_whole_check_and_nothing_is_left(
    cluster: Cluster, account: Account, server: client.Cluster
) -> None:
    row = carry_out(cluster)
    assert [line for line in lines(row, "permission") if line["result"] != "good"] == []
    for topic in ("version", "clock", "pod_security", "login"):
        assert [line["result"] for line in lines(row, topic)] == ["good"], topic
    assert {line["code"] for line in lines(row, "user_namespaces")} <= {
        "user_namespaces_unused", "user_namespaces_ignored", "user_namespaces_fails",
    }  # fmt: skip
    assert lines(row, "storage"), "every class was tried"
    assert not [line for line in row.lines if line["result"] == "unknown"]
    assert cluster.reason is None
    labels = {names.INSTALL: installation.install_id()}
    until("end of the namespace", lambda: not list(server.list("Namespace", labels=labels)))
    volumes = server.list("PersistentVolume")
    assert not [
        raw for raw in volumes if str(raw["spec"].get("claimRef", {}).get("namespace")).startswith("mlp-check-")
    ]


def test_network_policies_are_what_this_cluster_is_known_to_do_with_them(cluster: Cluster) -> None:
    known = os.environ.get("MLPORTAL_TEST_NETWORK_POLICY", "")
    assert known in ("enforced", "stored"), (
        "MLPORTAL_TEST_NETWORK_POLICY must say what the cluster does: enforced or stored"
    )
    (line,) = lines(carry_out(cluster), "network")
    expected = {"enforced": ("network_enforced", "good"), "stored": ("network_stored", "missing")}[known]
    assert (line["code"], line["result"]) == expected
    assert bool(line["command"]) == (known == "stored")


def test_a_verb_that_is_not_allowed_is_named_and_its_line_turns_good_when_it_is(
    cluster: Cluster, account: Account
) -> None:
    account.without("patch", "ingresses")
    row = until("missing permission", lambda: found if lacks(found := carry_out(cluster)) else None)
    (line,) = lacks(row)
    assert line["params"] == {
        "what": "ingresses.networking.k8s.io",
        "verbs": "get, list, create, patch, delete",
        "missing": "patch",
    }
    assert f"--serviceaccount={account.name}:portal" in line["command"]
    assert (cluster.state, cluster.reason_code) == ("connected", "cluster_permissions")
    account.restore()

    def mended() -> bool:
        assert reconciling.reconcile_one(checks.KIND, row.pk)
        cluster.refresh_from_db()
        return cluster.reason is None

    until("cluster without a reason", mended)


def lacks(row: ClusterCheck) -> list[dict[str, Any]]:
    return [line for line in lines(row, "permission") if line["result"] == "missing"]


# --- while something runs ----------------------------------------------------------------------------------------


@pytest.fixture
def queue(cluster: Cluster, server: client.Cluster) -> Iterator[Queue]:
    quota = Quota(cpu_millis=2000, memory_bytes=4 * GIB, storage_bytes=20 * GIB)
    made = quotas.create(actor=make.actor(make.admin()), name="q", team=make.team(), cluster=cluster, quota=quota)
    assert reconciling.reconcile_one("queue", made.pk)
    yield made
    with suppress(NotFound):
        server.delete("Namespace", None, made.namespace)


def test_a_permission_that_is_lost_is_told_on_the_instance_and_on_the_cluster_and_its_return_mends_both(
    queue: Queue, cluster: Cluster, account: Account
) -> None:
    image = Image.objects.create(name="dev", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
    size = Size.objects.create(name="small", cpu_millis=100, memory_bytes=128 << 20)
    owner = make.user(role_in=queue.team)
    account.without("create", "statefulsets")

    def denied() -> bool:
        try:
            return not access.connect(cluster).access_review(verb="create", kind="StatefulSet")
        finally:
            cluster.refresh_from_db()

    until("permission that is gone", denied)
    made: Instance = instances.create(actor=make.actor(owner), queue=queue.name, image=image.name, size=size.name)

    def reconciled(code: str) -> Any:
        reconciling.reconcile_one("instance", made.pk)
        made.refresh_from_db()
        return made.reason_code == code

    until("instance that says why", lambda: reconciled("permission_missing"))
    assert made.state == "unreachable"
    assert made.reason.sentence == "The portal's account in the cluster may not create statefulsets.apps any more."
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason_code) == ("connected", "cluster_permissions")
    assert "create statefulsets.apps" in cluster.reason.sentence
    row = checks.of(cluster)
    assert row is not None and row.due_at is not None, "all permissions are asked for"

    account.restore()
    until("permission that is back", lambda: not denied())

    def going_on() -> bool:
        reconciling.reconcile_one("instance", made.pk)
        made.refresh_from_db()
        return bool(made.stateful_set_uid) and made.state in ("starting", "queued", "running")

    until("instance that goes on", going_on)

    def cluster_is_well() -> bool:
        reconciling.reconcile_one(checks.KIND, row.pk)
        cluster.refresh_from_db()
        return cluster.reason is None

    until("cluster without a reason", cluster_is_well)


def test_a_removed_cluster_keeps_nothing_of_ours(cluster: Cluster, queue: Queue, server: client.Cluster) -> None:
    """The queue's row is lost, as after a restored backup; its namespace is still there."""
    Queue.objects.as_system().filter(pk=queue.pk).delete()
    assert server.get("Namespace", None, queue.namespace)
    services.remove(actor=make.actor(make.admin()), cluster=cluster)
    assert cluster.state == "removed"
    with pytest.raises(NotFound):
        server.get("Namespace", None, queue.namespace)
