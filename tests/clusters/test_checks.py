"""A check from the request to its lines: carried out by a worker, live, stored with its age, and always cleaned up."""

from __future__ import annotations

import inspect
import re
import uuid
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone, translation

from apps.catalog.models import Image
from apps.clusters import access, check_words, checks, contact, examining, reaper, services
from apps.clusters.installation import install_id
from apps.clusters.models import Cluster, ClusterCheck, Orphan
from apps.core import claims, reconciling
from apps.core.claims import ClaimLost
from apps.core.errors import Forbidden
from kubekit import names
from kubekit.build import probe
from kubekit.build.probe import ProbeSpec
from kubekit.checkup import facts, gateways, tried
from kubekit.credentials import Credentials
from kubekit.errors import PermissionDenied, Unreachable
from tests.clusters.probed import ProbedCluster, storage_class
from tests.kubekit.fakes import FakeApi, serving
from tests.tenants import make

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ProbedCluster:
    fake = ProbedCluster()
    fake.objects["StorageClass", None, "fast"] = storage_class("fast")
    default = {"ingressclass.kubernetes.io/is-default-class": "true"}
    fake.objects["IngressClass", None, "traefik"] = {"metadata": {"name": "traefik", "annotations": default}}
    fake.objects["Node", None, "n"] = {
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "H200"}},
        "status": {"allocatable": {"nvidia.com/gpu": "4"}},
    }
    monkeypatch.setattr(access, "connect", lambda cluster, *, any_version=False: fake)
    monkeypatch.setattr(examining, "PAUSE_S", 0.0)
    monkeypatch.setattr(examining, "SHUT_S", 0.0)
    monkeypatch.setattr(examining, "STORAGE_S", 0.0)
    return fake


@pytest.fixture
def image() -> Image:
    return Image.objects.create(name="python", reference="mlportal/python:1", purpose="task")


@pytest.fixture
def cluster(image: Image) -> Cluster:
    return make.cluster()


def carry_out(cluster: Cluster) -> ClusterCheck:
    row = services.check(actor=make.actor(make.admin()), cluster=cluster)
    assert reconciling.reconcile_one(checks.KIND, row.pk)
    row.refresh_from_db()
    cluster.refresh_from_db()
    return row


def by_code(row: ClusterCheck) -> dict[str, dict[str, Any]]:
    return {line["code"]: line for line in row.lines}


def test_a_good_cluster_is_good_line_by_line_and_nothing_is_left_in_it(cluster: Cluster, server: ProbedCluster) -> None:
    row = carry_out(cluster)
    found = by_code(row)
    assert not [line for line in row.lines if line["result"] in ("missing", "unknown")]
    assert {"version_good", "storage_good", "ingress_good", "pod_security_good", "network_enforced"} <= found.keys()
    assert found["gpu_model"]["params"] == {"resource": "nvidia.com/gpu", "model": "H200", "count": 4, "nodes": 1}
    assert (row.state, row.run) == ("succeeded", None)
    assert row.finished_at is not None and row.started_at is not None and row.started_at <= row.finished_at
    assert server.namespaces() == []
    assert "PersistentVolumeClaim" not in server.kinds() and "Pod" not in server.kinds()


@pytest.mark.parametrize(
    ("policies", "code", "result"),
    [
        ("enforced", "network_enforced", "good"),
        ("stored", "network_stored", "missing"),
        ("into", "network_only_into", "missing"),
        ("apart", "network_no_path", "unknown"),
        ("dies", "network_unclear", "unknown"),
    ],
)
def test_network_policy_is_what_pods_saw(
    cluster: Cluster, server: ProbedCluster, policies: str, code: str, result: str
) -> None:
    server.policies = policies
    line = by_code(carry_out(cluster))[code]
    assert (line["topic"], line["result"]) == ("network", result)
    assert bool(line["command"]) == (result == "missing")


def test_pods_that_do_not_run_make_lines_unknown_with_the_reason(cluster: Cluster, server: ProbedCluster) -> None:
    server.pods = False
    found = by_code(carry_out(cluster))
    assert found["network_no_pods"]["evidence"] == ["ErrImagePull: no such image"]
    assert found["user_namespaces_fails"]["evidence"] == ["ErrImagePull: no such image"]
    assert server.namespaces() == []


def test_without_an_image_for_tasks_nothing_is_tried_and_the_line_says_why(server: ProbedCluster) -> None:
    row = carry_out(make.cluster())
    assert by_code(row)["probes_no_image"]["result"] == "unknown"
    assert ("create", "Namespace") not in server.calls


def test_a_class_that_keeps_what_is_given_back_is_not_tried(cluster: Cluster, server: ProbedCluster) -> None:
    server.objects["StorageClass", None, "kept"] = {**storage_class("kept", default=False), "reclaimPolicy": "Retain"}
    server.bound = {"ReadWriteOnce"}
    found = by_code(carry_out(cluster))
    assert found["storage_not_tried"]["params"] == {"name": "kept"}
    assert found["storage_partly"]["params"]["without"] == "ReadWriteMany"


def test_a_class_that_waits_for_a_pod_gets_one(cluster: Cluster, server: ProbedCluster, monkeypatch) -> None:
    server.objects["StorageClass", None, "fast"]["volumeBindingMode"] = "WaitForFirstConsumer"
    mounted: list[str] = []
    create = server.create

    def keep(obj: Any, **given: Any) -> Any:
        volumes = obj["spec"].get("volumes") or () if obj["kind"] == "Pod" else ()
        mounted.extend(volume.get("persistentVolumeClaim", {}).get("claimName", "") for volume in volumes)
        return create(obj, **given)

    monkeypatch.setattr(server, "create", keep)
    carry_out(cluster)
    assert {"claim-0-rwo", "claim-0-rwx"} <= set(mounted)


def test_a_cluster_that_is_one_version_too_old_is_refused_and_nothing_is_written_to_it(
    cluster: Cluster, server: ProbedCluster
) -> None:
    server.minor = "28"
    row = carry_out(cluster)
    assert [line["code"] for line in row.lines] == ["version_too_old"]
    assert {verb for verb, _kind in server.calls} <= {"version", "list"}
    contact.note_answer(cluster.pk, version="v1.28.1")
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason_code) == ("unreachable", "cluster_too_old")
    assert "Kubernetes v1.28.1; the portal needs 1.29 or later" in cluster.reason.sentence
    contact.note_alive(cluster.pk)
    cluster.refresh_from_db()
    assert cluster.reason_code == "cluster_too_old"
    contact.note_answer(cluster.pk, version="v1.29.0")
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason) == ("connected", None)


def test_nothing_else_of_the_portal_talks_to_a_cluster_that_is_too_old() -> None:
    cluster = make.cluster(version="v1.28.9")
    cluster.refresh_from_db()
    with pytest.raises(access.TooOld):
        access.connect(cluster)
    assert access.connect(cluster, any_version=True)
    cluster.version = "v1.29.0"
    assert access.connect(cluster)


def test_a_cluster_that_does_not_answer_is_one_line_and_what_was_found_before_is_kept(
    cluster: Cluster, server: ProbedCluster, monkeypatch
) -> None:
    served = server.served

    def away(group: str) -> Any:
        server.away = True
        raise Unreachable("refused")

    monkeypatch.setattr(server, "served", away)
    row = carry_out(cluster)
    assert row.lines[0]["code"] == "version_good"
    assert (row.lines[-1]["code"], row.lines[-1]["evidence"]) == ("silent", ["refused"])
    assert served("x") == ()


def test_missing_permissions_stand_on_the_cluster_until_they_are_granted(
    cluster: Cluster, server: ProbedCluster
) -> None:
    server.denied = {("create", "Pod"), ("list", "PriorityClass")}
    row = carry_out(cluster)
    line = by_code(row)["permission_missing"]
    assert (line["params"]["what"], line["params"]["missing"]) == ("pods", "create")
    assert "--serviceaccount=portal:robot" in line["command"]
    assert cluster.reason_code == "cluster_permissions"
    assert "create pods" in cluster.reason.sentence
    contact.note_answer(cluster.pk)
    cluster.refresh_from_db()
    assert cluster.reason_code == "cluster_permissions", "an answer alone grants nothing"
    assert row.due_at is not None and row.due_at <= timezone.now() + checks.ASK_AGAIN
    server.denied.clear()
    finished, tried_before = row.finished_at, len(row.lines)
    assert reconciling.reconcile_one(checks.KIND, row.pk)
    row.refresh_from_db()
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason, row.due_at) == ("connected", None, None)
    assert "permission_missing" not in by_code(row)
    assert (row.finished_at, len(row.lines)) == (finished, tried_before), "only the permissions were asked again"


def test_without_the_right_to_make_namespaces_nothing_is_tried(cluster: Cluster, server: ProbedCluster) -> None:
    server.denied = {("create", "Namespace")}
    row = carry_out(cluster)
    assert row.lines[-1]["code"] == "probes_refused"


# --- cleaning up -------------------------------------------------------------------------------------------------


def leave(server: ProbedCluster, run: uuid.UUID, *, install: str | None = None) -> str:
    spec = ProbeSpec(install=install or install_id(), id=str(run), image="x")
    server.apply(probe.namespace(spec))
    return spec.namespace


def test_what_a_killed_worker_left_behind_goes_when_the_check_is_taken_up_again(
    cluster: Cluster, server: ProbedCluster
) -> None:
    row = services.check(actor=make.actor(make.admin()), cluster=cluster)
    dead = uuid.uuid4()
    past = timezone.now() - timedelta(hours=1)
    rows = ClusterCheck.objects.as_system().filter(pk=row.pk)
    rows.update(state="running", run=dead, claim_token=7, claimed_until=past, lines=[{"code": "old"}])
    leave(server, dead)
    other = leave(server, uuid.uuid4(), install="another-portal")
    assert reconciling.reconcile_one(checks.KIND, row.pk)
    row.refresh_from_db()
    assert row.state == "succeeded"
    assert "old" not in by_code(row)
    assert server.namespaces() == [other], "another portal's stays"


def test_a_namespace_of_a_running_check_is_left_alone_and_the_reaper_takes_the_others(
    cluster: Cluster, server: ProbedCluster, settings
) -> None:
    settings.PORTAL_ORPHAN_GRACE_S = 0
    alive, dead = uuid.uuid4(), uuid.uuid4()
    ClusterCheck.objects.create(cluster=cluster, state="running", run=alive)
    kept, gone = leave(server, alive), leave(server, dead)
    examining.remove_leftovers(server, install=install_id(), alive=lambda ids: {str(alive)} & set(ids))
    assert server.namespaces() == [kept]
    leave(server, dead)
    assert reaper._registry["probe"] == checks.REAPABLE
    assert reaper.reap(cluster) == [], "it is recorded first"
    removed = reaper.reap(cluster)
    assert [(orphan.kind, orphan.name) for orphan in removed] == [("Namespace", gone)]
    assert server.namespaces() == [kept]
    assert Orphan.objects.as_system().get().row_kind == "probe"


def test_a_probe_goes_also_when_the_check_breaks_off_in_the_middle(
    cluster: Cluster, server: ProbedCluster, monkeypatch
) -> None:
    def broken(trial: Any) -> Any:
        raise RuntimeError("a fault in the program")

    monkeypatch.setattr(tried, "network", broken)
    row = services.check(actor=make.actor(make.admin()), cluster=cluster)
    assert reconciling.reconcile_one(checks.KIND, row.pk)
    assert server.namespaces() == []
    row.refresh_from_db()
    assert row.state == "running" and row.due_at is not None, "it is tried again"


def test_a_worker_that_lost_its_claim_writes_nothing_more_and_cleans_up(
    cluster: Cluster, server: ProbedCluster, monkeypatch
) -> None:
    row = services.check(actor=make.actor(make.admin()), cluster=cluster)
    claim = claims.take(ClusterCheck, row.pk)
    assert claim is not None
    judge = facts.clock

    def slow(theirs: Any, ours: Any) -> Any:
        ClusterCheck.objects.as_system().filter(pk=row.pk).update(claim_token=claim.token + 1)
        return judge(ours, ours)

    monkeypatch.setattr(facts, "clock", slow)
    with pytest.raises(ClaimLost):
        checks.run(row.pk, claim)
    assert server.namespaces() == []
    row.refresh_from_db()
    assert row.state == "running"
    assert "clock_good" not in by_code(row)


# --- asking and showing ------------------------------------------------------------------------------------------


def test_asking_twice_is_one_check_and_asking_later_is_another(cluster: Cluster, server: ProbedCluster, hints) -> None:
    first = services.check(actor=make.actor(make.admin()), cluster=cluster)
    assert services.check(actor=make.actor(make.admin()), cluster=cluster).pk == first.pk
    assert reconciling.reconcile_one(checks.KIND, first.pk)
    again = services.check(actor=make.actor(make.admin()), cluster=cluster)
    assert (again.pk, again.state) == (first.pk, "queued")
    assert again.lines, "what was found stays until the new one begins"


def test_only_administrators_check(cluster: Cluster) -> None:
    with pytest.raises(Forbidden):
        services.check(actor=make.actor(make.user()), cluster=cluster)
    client = Client()
    client.force_login(make.user())
    assert client.post(f"/clusters/{cluster.pk}/check/run").status_code == 403
    assert client.get(f"/clusters/{cluster.pk}/check").status_code == 403


def test_the_button_asks_and_the_page_shows_the_lines_live_with_their_age_and_commands(
    cluster: Cluster, server: ProbedCluster
) -> None:
    client = Client()
    client.force_login(make.admin())
    page = client.get(f"/clusters/{cluster.pk}/check").content.decode()
    assert "This cluster was never checked." in page
    answer = client.post(f"/clusters/{cluster.pk}/check/run")
    assert answer["Location"] == f"/clusters/{cluster.pk}/check"
    page = client.get(answer["Location"]).content.decode()
    assert "waiting for a worker" in page and "disabled" in page
    server.policies = "stored"
    row = checks.of(cluster)
    assert row is not None and reconciling.reconcile_one(checks.KIND, row.pk)
    page = client.get(f"/clusters/{cluster.pk}/check").content.decode()
    assert "1 thing is missing." in page
    assert "Stored only: under a policy that denies all" in page
    assert "data-copy" in page and "kubectl apply -f https://" in page
    assert f'data-live="cluster:{cluster.pk} clustercheck"' in page
    assert "<time" in page


def test_rest_asks_and_tells_and_a_cluster_never_checked_is_404(cluster: Cluster, server: ProbedCluster) -> None:
    client = Client()
    client.force_login(make.admin())
    path = f"/api/v1/clusters/{cluster.pk}/check"
    assert client.get(path).status_code == 404
    asked = client.post(path)
    assert (asked.status_code, asked.json()["state"]) == (202, "queued")
    row = checks.of(cluster)
    assert row is not None and reconciling.reconcile_one(checks.KIND, row.pk)
    told = client.get(path).json()
    assert (told["state"], told["finished_at"] is None) == ("succeeded", False)
    line = next(line for line in told["lines"] if line["code"] == "network_enforced")
    assert line.keys() == {"what", "result", "code", "detail", "fix", "command", "evidence"}
    client.force_login(make.user())
    assert client.get(path).status_code == client.post(path).status_code == 403


def test_the_command_carries_it_out_and_its_status_says_whether_something_is_missing(
    cluster: Cluster, server: ProbedCluster
) -> None:
    out = StringIO()
    call_command("check_cluster", cluster.name, stdout=out)
    assert "ok       Kubernetes version: v1.36.1" in out.getvalue()
    server.policies = "stored"
    with pytest.raises(CommandError, match="missing: 1"):
        call_command("check_cluster", cluster.name, stdout=out)
    assert "MISSING  Network policies, tried by pods" in out.getvalue()
    assert "$ kubectl apply -f" in out.getvalue()
    with pytest.raises(CommandError, match="no cluster named nobody"):
        call_command("check_cluster", "nobody")


def test_every_code_that_a_verdict_can_have_has_its_words() -> None:
    """The codes stand in kubekit as literals, the words here."""
    text = "".join(inspect.getsource(part) for part in (facts, gateways, tried, examining, checks))
    codes = set(re.findall(r'code="([a-z_]+)"', text)) | set(re.findall(r'_network\(\s*"([a-z_]+)"', text))
    codes |= set(re.findall(r'"(gateway_(?:parent|listener)_[a-z_]+)"', text))
    codes |= set(re.findall(r'"((?:version|permission|metrics|gpu|priority|clock|user_namespaces)_[a-z_]+)"', text))
    assert len(codes) > 30
    assert codes - {"user_namespaces", "storage_class"} - check_words.FOUND.keys() == set()
    topics = set(re.findall(r'topic="([a-z_]+)"', text))
    assert topics - check_words.TOPICS.keys() == set()


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_every_line_reads_in_both_languages(language: str) -> None:
    names_of_params = re.findall(r"{([a-z]+)}", str(check_words.FOUND) + str(check_words.TOPICS))
    params = dict.fromkeys(names_of_params, "x")
    with translation.override(language):
        for topic in check_words.TOPICS:
            for code in check_words.FOUND:
                line = {"topic": topic, "code": code, "result": "note", "params": params, "command": "", "evidence": []}
                assert check_words.shown(line).detail


def test_names_of_objects_are_those_of_the_run(cluster: Cluster, server: ProbedCluster, monkeypatch) -> None:
    seen: list[dict[str, Any]] = []
    apply = server.apply

    def keep(obj: Any, **given: Any) -> Any:
        seen.append(obj)
        return apply(obj, **given)

    monkeypatch.setattr(server, "apply", keep)
    carry_out(cluster)
    assert len({obj["metadata"]["labels"][names.ID] for obj in seen}) == 1
    assert {obj["metadata"]["labels"][names.KIND] for obj in seen} == {"probe"}
    assert {obj["metadata"]["labels"][names.INSTALL] for obj in seen} == {install_id()}


# --- a permission that is lost while the portal runs -------------------------------------------------------------


def denied(verb: str, resource: str) -> PermissionDenied:
    text = f'x is forbidden: User "robot" cannot {verb} resource "{resource}"'
    return PermissionDenied(text, verb=verb, resource=resource, status=403)


def test_a_denied_request_is_told_on_the_cluster_and_asks_for_all_permissions_again(
    cluster: Cluster, server: ProbedCluster, hints
) -> None:
    row = carry_out(cluster)
    hints.clear()
    server.denied = {("create", "StatefulSet"), ("patch", "StatefulSet")}
    checks.note_denied(cluster.pk, denied("create", "statefulsets.apps"))
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason_code) == ("connected", "cluster_permissions")
    assert "create statefulsets.apps" in cluster.reason.sentence
    checks.note_denied(cluster.pk, denied("patch", "pods"))  # the first is enough
    assert reconciling.reconcile_one(checks.KIND, row.pk)
    cluster.refresh_from_db()
    row.refresh_from_db()
    assert "create, patch statefulsets.apps" in cluster.reason.sentence
    assert by_code(row)["permission_missing"]["params"]["what"] == "statefulsets.apps"
    server.denied.clear()
    assert reconciling.reconcile_one(checks.KIND, row.pk)
    cluster.refresh_from_db()
    assert cluster.reason is None


def test_a_cluster_that_was_never_checked_is_then_checked(cluster: Cluster, server: ProbedCluster) -> None:
    checks.note_denied(cluster.pk, denied("create", "pods"))
    row = checks.of(cluster)
    assert row is not None and row.state == "queued"


@pytest.mark.parametrize(("verb", "resource"), [("list", "nodes.metrics.k8s.io"), ("create", "deployments.apps")])
def test_what_the_portal_does_not_need_is_no_news(cluster: Cluster, verb: str, resource: str) -> None:
    checks.note_denied(cluster.pk, denied(verb, resource))
    cluster.refresh_from_db()
    assert cluster.reason is None
    assert checks.of(cluster) is None


def test_every_client_of_a_cluster_tells_what_it_was_denied(cluster: Cluster, monkeypatch) -> None:
    told: list[tuple[uuid.UUID, str]] = []
    monkeypatch.setattr(access, "_denied", [lambda pk, error: told.append((pk, error.resource))])
    body = {
        "message": 'pods is forbidden: User "u" cannot list resource "pods" in API group "" at the cluster scope',
        "code": 403,
    }
    with serving(FakeApi().answer("GET /api/v1/pods", body, status=403)) as api:
        credentials = access.pack(Credentials(server=api.url, token="t"))
        row = make.cluster(credentials=credentials)
        row.refresh_from_db()
        with pytest.raises(PermissionDenied):
            list(access.connect(row).list("Pod"))
    assert told == [(row.pk, "pods")]
