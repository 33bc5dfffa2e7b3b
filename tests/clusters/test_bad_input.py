"""What may be wrong with a cluster, at its registration and later: a clear sentence each, and nothing half-made."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from django.test import Client

from apps.clusters import access, checks, leavings, services
from apps.clusters.installation import install_id
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import reconciling
from apps.core.errors import Conflict, Invalid, Unavailable
from apps.tenants import quotas
from apps.tenants.models import Queue
from apps.tenants.quotas import Quota
from tests.clusters.fake import FakeCluster
from tests.kubekit.certificates import authority
from tests.tenants import make

pytestmark = pytest.mark.django_db
CA = authority()
QUOTA = Quota(cpu_millis=1000, memory_bytes=1 << 30, storage_bytes=1 << 30)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(server: str = "https://203.0.114.5:6443", user: dict[str, Any] | None = None, **cluster: Any) -> str:
    document = {
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "canary-token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    return yaml.safe_dump(document)


OLD_CERT, OLD_KEY = CA.issue("portal", days_ago=400)
BAD: dict[str, tuple[str, str, str]] = {
    "a program to run": (
        kubeconfig(user={"exec": {"command": "touch", "args": ["/tmp/x"]}}),
        "kubeconfig_exec",
        "programs are never run",
    ),
    "a file of the portal's machine": (
        kubeconfig(user={"tokenFile": "/etc/passwd"}),
        "kubeconfig_token_file",
        "give the token itself",
    ),
    "a CA by its path": (
        kubeconfig(**{"certificate-authority": "/etc/ssl/ca.crt"}),
        "kubeconfig_ca_file",
        "give the CA inside the file",
    ),
    "a proxy": (kubeconfig(**{"proxy-url": "http://proxy:3128"}), "kubeconfig_proxy", "a proxy cannot be named"),
    "an expired client certificate": (
        kubeconfig(user={"client-certificate-data": b64(OLD_CERT), "client-key-data": b64(OLD_KEY)}),
        "kubeconfig_expired",
        "the client certificate ended on",
    ),
    "one mebibyte and more": (kubeconfig() + "#" * (1 << 20), "kubeconfig_too_large", "at most 1 MiB"),
}
INSIDE = (
    "https://127.0.0.1:6443",
    "https://[::1]:6443",
    "https://10.1.2.3:6443",
    "https://192.168.1.1",
    "https://172.16.0.9:6443",
    "https://100.64.0.1",
    "https://169.254.169.254",
    "https://[fd00::1]:6443",
    "https://[::ffff:169.254.169.254]",
    "https://2852039166",
    "https://0x7f.1",
    "https://localhost:6443",
)


@pytest.fixture
def admin_client() -> Client:
    client = Client()
    client.force_login(make.admin())
    return client


@pytest.mark.parametrize("what", list(BAD))
def test_a_kubeconfig_that_could_act_or_cannot_work_is_refused_in_a_sentence_at_its_field(
    admin_client: Client, what: str
) -> None:
    text, code, words = BAD[what]
    form = {
        "name": "far",
        "kubeconfig": text,
        "apps_domain": "apps.example.net",
        "apps_scheme": "https",
        "apps_port": "0",
        "exposure": "ingress",
    }
    answer = admin_client.post("/clusters/new", form)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert words in page and f'data-error-code="{code}"' in page
    assert 'id="id_kubeconfig-error"' in page
    assert not Cluster.objects.as_system().exists()


@pytest.mark.parametrize("server", INSIDE)
def test_a_server_inside_is_refused_unless_the_operator_allows_it(server: str, settings) -> None:
    with pytest.raises(Invalid) as refused:
        services.read_kubeconfig(kubeconfig(server))
    assert refused.value.code == "address_internal"
    assert "is an internal address" in str(refused.value.detail)
    assert "PORTAL_EGRESS_ALLOW" in str(refused.value.next)
    settings.PORTAL_EGRESS_ALLOW = (
        "127.0.0.0/8", "::1", "10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12", "100.64.0.0/10", "169.254.0.0/16",
        "fd00::/8", "::ffff:0:0/96",
    )  # fmt: skip
    assert services.read_kubeconfig(kubeconfig(server)).token == "canary-token"


@pytest.mark.parametrize("enforce_csrf_checks", [True, False])
def test_ten_megabytes_are_told_as_too_large_on_the_page_and_in_the_api(enforce_csrf_checks: bool) -> None:
    client = Client(raise_request_exception=False, enforce_csrf_checks=enforce_csrf_checks)
    client.force_login(make.admin())
    client.get("/clusters/new")  # gives the cookie without which the middleware reads nothing
    data = {"name": "far", "kubeconfig": "a" * 10_000_000, "apps_domain": "apps.example.net"}
    body = "&".join(f"{key}={value}" for key, value in data.items())
    answer = client.post("/clusters/new", body, content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 413
    assert "A kubeconfig, for example, is at most 1 MiB." in answer.content.decode()
    told = Client(raise_request_exception=False)
    told.force_login(make.admin())
    answer = told.post("/api/v1/clusters", data, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert not Cluster.objects.as_system().exists()


def test_a_cluster_of_a_person_is_checked_at_once_and_one_of_the_operator_is_not(settings) -> None:
    settings.PORTAL_EGRESS_ALLOW = ("127.0.0.0/8",)
    admin = make.actor(make.admin())
    text = kubeconfig("https://127.0.0.1:6443")
    asked = services.register(actor=admin, name="theirs", kubeconfig=text, apps_domain="apps.example.net")
    row = checks.of(asked)
    assert row is not None and row.state == "queued"
    given = services.register(actor=admin, name="given", kubeconfig=text, trusted=True, apps_domain="apps.localhost")
    assert checks.of(given) is None


# --- too old -----------------------------------------------------------------------------------------------------


def test_no_queue_is_made_on_a_cluster_that_is_one_version_too_old() -> None:
    cluster = make.cluster(version="v1.28.15")
    with pytest.raises(Conflict) as refused:
        quotas.create(actor=make.actor(make.admin()), name="q", team=make.team(), cluster=cluster, quota=QUOTA)
    assert (refused.value.code, Queue.objects.as_system().count()) == ("cluster_too_old", 0)
    assert "v1.28.15, which is too old" in str(refused.value.detail)


def test_a_queue_asked_for_before_the_first_contact_is_not_half_made(fake_cluster: FakeCluster) -> None:
    fake_cluster.minor = "28"
    queue = make.queue(state="creating")
    assert reconciling.reconcile_one("queue", queue.pk)
    queue.refresh_from_db()
    assert (queue.state, queue.reason_code) == ("failed", "queue_cluster_too_old")
    assert "too old, so nothing was made there" in queue.reason.sentence
    assert fake_cluster.kinds() == []
    fake_cluster.minor = "29"
    queue.cluster.version = "v1.29.0"
    queue.cluster.save()
    assert reconciling.reconcile_one("queue", queue.pk)
    queue.refresh_from_db()
    assert (queue.state, queue.reason) == ("ready", None)


# --- a namespace that is not ours --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"mlportal.io/install": "another", "mlportal.io/id": "OWN"},
        {"mlportal.io/install": "OWN", "mlportal.io/id": "x"},
    ],
)
def test_a_namespace_that_exists_and_is_not_ours_is_left_exactly_as_it_is(
    fake_cluster: FakeCluster, labels: dict[str, str]
) -> None:
    queue = make.queue(state="creating")
    own = {"mlportal.io/install": install_id(), "mlportal.io/id": str(queue.pk)}
    metadata = {
        "name": queue.namespace,
        "uid": "theirs",
        "labels": {k: own[k] if v == "OWN" else v for k, v in labels.items()},
    }
    theirs = {"kind": "Namespace", "metadata": metadata}
    fake_cluster.objects["Namespace", None, queue.namespace] = theirs
    before = repr(theirs)
    assert reconciling.reconcile_one("queue", queue.pk)
    queue.refresh_from_db()
    assert (queue.state, queue.reason_code) == ("failed", "queue_namespace_foreign")
    assert f"The namespace {queue.namespace} exists in the cluster and is not this queue's." in queue.reason.sentence
    assert repr(fake_cluster.objects["Namespace", None, queue.namespace]) == before
    assert fake_cluster.kinds() == ["Namespace"], "no quota, no limits, no policies: nothing half-made"
    assert {verb for verb, _kind in fake_cluster.calls} <= {"version", "get"}


# --- removed from the portal -------------------------------------------------------------------------------------


def leave_behind(server: FakeCluster, *, install: str = "", kind: str = "queue", row: str = "") -> str:
    queue = make.queue()
    name = queue.namespace
    labels = {
        "mlportal.io/install": install or install_id(),
        "mlportal.io/kind": kind,
        "mlportal.io/id": row or str(queue.pk),
    }
    queue.delete()
    server.objects["Namespace", None, name] = {
        "kind": "Namespace",
        "metadata": {"name": name, "uid": name, "labels": labels},
    }
    return name


def left(server: FakeCluster) -> list[str]:
    return sorted(name for kind, _namespace, name in server.objects if kind == "Namespace")


def test_a_removed_cluster_keeps_nothing_of_ours_and_everything_of_others(fake_cluster: FakeCluster) -> None:
    cluster = make.cluster(version="v1.36.0")
    leave_behind(fake_cluster)
    leave_behind(fake_cluster, kind="probe")
    others = sorted([leave_behind(fake_cluster, install="another-portal"), leave_behind(fake_cluster, kind="team")])
    elsewhere = make.queue(on=make.cluster(version="v1.36.0"))
    kept = leave_behind(fake_cluster, row=str(elsewhere.pk))
    services.remove(actor=make.actor(make.admin()), cluster=cluster)
    assert cluster.state == ClusterState.REMOVED
    assert left(fake_cluster) == sorted([*others, kept]), "a queue on another registration of the same cluster lives"


def test_with_keep_nothing_in_the_cluster_is_touched(fake_cluster: FakeCluster) -> None:
    cluster = make.cluster(version="v1.36.0")
    name = leave_behind(fake_cluster)
    fake_cluster.away = True
    services.remove(actor=make.actor(make.admin()), cluster=cluster, keep=True)
    assert cluster.state == ClusterState.REMOVED
    assert left(fake_cluster) == [name]
    assert fake_cluster.calls == []


def test_a_cluster_that_does_not_answer_is_not_forgotten_with_ours_in_it(fake_cluster: FakeCluster) -> None:
    cluster = make.cluster(version="v1.36.0")
    leave_behind(fake_cluster)
    fake_cluster.away = True
    with pytest.raises(Unavailable) as refused:
        services.remove(actor=make.actor(make.admin()), cluster=cluster)
    assert refused.value.code == "cluster_not_swept"
    assert "keep what is in it" in str(refused.value.next)
    cluster.refresh_from_db()
    assert cluster.state == ClusterState.CONNECTED and bool(cluster.credentials)


def test_what_the_cluster_is_still_deleting_is_named(fake_cluster: FakeCluster, monkeypatch) -> None:
    monkeypatch.setattr(leavings, "WAIT_S", 0.0)
    cluster = make.cluster(version="v1.36.0")
    name = leave_behind(fake_cluster)
    fake_cluster.finalizers = {"Namespace"}
    with pytest.raises(Conflict) as refused:
        services.remove(actor=make.actor(make.admin()), cluster=cluster)
    assert refused.value.code == "cluster_sweeping" and name in str(refused.value.detail)


def test_a_cluster_that_never_answered_has_nothing_of_ours(monkeypatch) -> None:
    monkeypatch.setattr(access, "connect", lambda *_args, **_more: pytest.fail("nobody is there to ask"))
    cluster = make.cluster(state=ClusterState.PENDING)
    services.remove(actor=make.actor(make.admin()), cluster=cluster)
    assert cluster.state == ClusterState.REMOVED


def test_both_ways_to_remove_stand_on_the_page_and_in_the_api(fake_cluster: FakeCluster, admin_client: Client) -> None:
    one, two = make.cluster(version="v1.36.0"), make.cluster(version="v1.36.0")
    name = leave_behind(fake_cluster)
    page = admin_client.get(f"/clusters/{one.pk}").content.decode()
    assert "with all data in it" in page and "Forget, keep what is in it" in page
    admin_client.post(f"/clusters/{one.pk}/remove", {"keep": "true"})
    assert left(fake_cluster) == [name]
    assert admin_client.delete(f"/api/v1/clusters/{two.pk}?keep=true").status_code == 204
    assert left(fake_cluster) == [name]
    three = make.cluster(version="v1.36.0")
    assert admin_client.delete(f"/api/v1/clusters/{three.pk}").status_code == 204
    assert left(fake_cluster) == []
    states = Cluster.objects.as_system().filter(pk__in=[one.pk, two.pk, three.pk]).values_list("state", flat=True)
    assert set(states) == {"removed"}
