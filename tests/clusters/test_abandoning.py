"""A cluster that never answers again is given up with all that is on it: everything ends in a clear state, or nothing
changes."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import abandoning, access
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import claims, reconciling
from apps.core.actors import Actor
from apps.core.claims import ClaimLost
from apps.core.errors import Conflict, Forbidden, Invalid
from apps.core.models import AuditEntry
from apps.core.transitions import transition
from apps.flows import services as flows
from apps.flows.models import Attempt, Flow, Run, Schedule
from apps.instances import services as instances
from apps.instances.models import Instance
from apps.storage import services as storage
from apps.storage.models import Volume
from apps.tenants import quotas
from apps.tenants.models import Queue, Reservation
from kubekit.errors import NotFound
from tests.clusters.fake import FakeCluster
from tests.tenants import make

pytestmark = pytest.mark.django_db

GIB = 1 << 30
NODE = {"name": "main", "executor": "container", "image": "python", "size": "small", "command": ["sleep", "600"]}
NIGHTLY = {"cron": "0 3 * * *", "timezone": "UTC"}


class Lost:
    """A cluster at an address where nobody answers, and one of everything on it."""

    def __init__(self) -> None:
        self.admin = make.admin()
        self.cluster: Cluster = make.cluster(name="far", version="v1.36.0", state=ClusterState.UNREACHABLE)
        self.cluster.refresh_from_db()
        self.queue: Queue = make.queue(on=self.cluster)
        self.owner = make.user(role_in=self.queue.team)
        Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
        Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK)
        Size.objects.create(name="small", cpu_millis=500, memory_bytes=GIB)
        self.instance: Instance = instances.create(
            actor=self.actor, queue=self.queue.name, image="jupyter", size="small"
        )
        self.data: Volume = storage.create(actor=self.actor, queue=self.queue, name="data", size_bytes=2 * GIB)
        document = {"name": "nightly", "queue": self.queue.name, "nodes": [NODE], "schedules": [NIGHTLY]}
        self.flow: Flow = flows.create_flow(actor=self.actor, document=document)
        self.run: Run = flows.run_now(actor=self.actor, flow=self.flow)
        self.cancelled: Run = flows.cancel(actor=self.actor, run=flows.run_now(actor=self.actor, flow=self.flow))

    @property
    def actor(self) -> Actor:
        return make.actor(self.owner)

    def rows(self) -> dict[str, Any]:
        """Everything on it, as the database has it now."""
        found: dict[str, Any] = {"queue": self.queue, "instance": self.instance, "data": self.data}
        found |= {"home": self.instance.home, "flow": self.flow, "run": self.run, "cancelled": self.cancelled}
        found["attempt"] = Attempt.objects.as_system().get(run=self.run)
        for row in found.values():
            row.refresh_from_db()
        self.cluster.refresh_from_db()
        return found

    def states(self) -> dict[str, str]:
        return {name: row.state for name, row in self.rows().items()}

    def held(self) -> int:
        return int(Reservation.objects.as_system().filter(queue=self.queue, released_at=None).count())

    def abandon(self, confirm: str = "far") -> None:
        abandoning.abandon(actor=make.actor(self.admin), cluster=self.cluster, confirm=confirm)


@pytest.fixture
def lost() -> Lost:
    return Lost()


def browser(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_everything_on_it_ends_says_why_and_holds_nothing(lost: Lost) -> None:
    assert lost.held() > 0
    lost.abandon()
    assert lost.states() == {
        "queue": "deleted", "instance": "deleted", "data": "deleted", "home": "deleted", "flow": "deleted",
        "run": "failed", "cancelled": "cancelled", "attempt": "lost",
    }  # fmt: skip
    assert lost.held() == 0
    for row in lost.rows().values():
        assert "The cluster “far” was lost, and" in row.reason.sentence, row
    assert not Schedule.objects.as_system().exclude(next_fire_at=None).exists()
    assert (lost.cluster.state, bool(lost.cluster.credentials)) == (ClusterState.REMOVED, False)
    assert lost.instance.key.reveal() == ""
    verbs = set(AuditEntry.objects.as_system().values_list("verb", flat=True))
    assert {f"{kind}.abandon" for kind in ("cluster", "queue", "instance", "volume", "flow", "run", "attempt")} <= verbs


def test_owners_read_why_on_each_page(lost: Lost) -> None:
    lost.abandon()
    client = browser(lost.owner)
    for row in (lost.queue, lost.instance, lost.data, lost.flow, lost.run):
        answer = client.get(row.get_absolute_url())
        assert answer.status_code == 200, row
        assert "The cluster “far” was lost" in answer.content.decode(), row
    for address in ("/instances", "/volumes", "/queues", "/flows"):
        assert "far" not in client.get(address).content.decode()
    stranger = browser(make.user(role_in=make.team()))
    assert [stranger.get(row.get_absolute_url()).status_code for row in (lost.queue, lost.data)] == [404, 404]


def test_names_are_free_again_and_workers_have_nothing_left_to_do(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    lost.abandon()
    monkeypatch.setattr(access, "connect", lambda *_given, **_more: pytest.fail("nobody is there to ask"))
    for kind, row in (("queue", lost.queue), ("volume", lost.data), ("instance", lost.instance)):
        assert reconciling.reconcile_one(kind, row.pk)
    assert reconciling.reconcile_one("attempt", Attempt.objects.as_system().get(run=lost.run).pk)
    due = {pk for _kind, pk, _when in reconciling.due_soonest()}
    assert not due & {row.pk for row in lost.rows().values()}
    make.cluster(name="far")
    make.queue(name=lost.queue.name, in_team=lost.queue.team)


def test_a_worker_that_holds_a_row_meanwhile_writes_nothing_more(lost: Lost) -> None:
    claim = claims.take(Instance, lost.instance.pk)
    assert claim is not None
    lost.abandon()
    with pytest.raises(ClaimLost):
        transition(lost.instance, "deleting", actor=lost.actor, claim=claim)
    assert lost.states()["instance"] == "deleted"


def test_when_one_part_fails_nothing_has_changed(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    before, held = lost.states(), lost.held()

    def fail(*_given: Any) -> None:
        raise RuntimeError("in the middle")

    broken = abandoning.Part(order=35, end=fail, lost=lambda _pk: [])
    monkeypatch.setattr(abandoning, "_parts", sorted([*abandoning._parts, broken], key=lambda part: part.order))
    with pytest.raises(RuntimeError, match="in the middle"):
        lost.abandon()
    assert (lost.states(), lost.held()) == (before, held)
    assert lost.cluster.state == ClusterState.UNREACHABLE and bool(lost.cluster.credentials)
    assert not AuditEntry.objects.as_system().filter(verb__endswith=".abandon").exists()


def test_what_answers_is_not_given_up(lost: Lost, fake_cluster: FakeCluster) -> None:
    """It came back a moment ago, and nobody has noticed yet."""
    before = lost.states()
    with pytest.raises(Conflict) as refused:
        lost.abandon()
    assert refused.value.code == "cluster_answers"
    Cluster.objects.as_system().filter(pk=lost.cluster.pk).update(state=ClusterState.CONNECTED)
    lost.cluster.refresh_from_db()
    fake_cluster.away = True  # the watcher will say so first
    with pytest.raises(Conflict):
        lost.abandon()
    assert lost.states() == before


def test_a_cluster_that_came_back_while_one_typed_is_kept(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    def came_back(_cluster: Cluster) -> None:
        Cluster.objects.as_system().filter(pk=lost.cluster.pk).update(state=ClusterState.CONNECTED)

    monkeypatch.setattr(abandoning, "_require_silence", came_back)
    before = lost.states()
    with pytest.raises(Conflict) as refused:
        lost.abandon()
    assert (refused.value.code, lost.states()) == ("cluster_answers", before)


@pytest.mark.parametrize("typed", ["", "Far", "far-away", "yes"])
def test_only_its_name_confirms(lost: Lost, typed: str) -> None:
    before = lost.states()
    with pytest.raises(Invalid) as refused:
        lost.abandon(typed)
    assert (refused.value.code, list(refused.value.errors)) == ("not_confirmed", ["confirm"])
    assert lost.states() == before


def test_others_may_not(lost: Lost) -> None:
    with pytest.raises(Forbidden):
        abandoning.abandon(actor=lost.actor, cluster=lost.cluster, confirm="far")
    client = browser(lost.owner)
    body = {"confirm": "far"}
    answer = client.post(f"/api/v1/clusters/{lost.cluster.pk}/abandon", body, content_type="application/json")
    assert answer.status_code == 403
    assert lost.states()["queue"] == "ready"


def test_the_page_says_what_is_lost_and_what_stays_and_takes_the_name(lost: Lost) -> None:
    client = browser(lost.admin)
    page = client.get(f"/clusters/{lost.cluster.pk}").content.decode()
    assert f"/clusters/{lost.cluster.pk}/abandon" in page
    page = client.get(f"/clusters/{lost.cluster.pk}/abandon").content.decode()
    for text in ("1 queue", "1 instance", "2 volumes with all data on them", "1 flow", "2 runs that have not ended"):
        assert text in page, text
    assert "runs on there, and what is stored in it stays" in page
    wrong = client.post(f"/clusters/{lost.cluster.pk}/abandon", {"confirm": "near"})
    assert wrong.status_code == 422 and 'id="id_confirm-error"' in wrong.content.decode()
    assert lost.states()["queue"] == "ready"
    assert client.post(f"/clusters/{lost.cluster.pk}/abandon", {"confirm": "far"})["Location"] == "/clusters"
    assert lost.states()["queue"] == "deleted"


def test_rest_does_the_same(lost: Lost) -> None:
    client, address = browser(lost.admin), f"/api/v1/clusters/{lost.cluster.pk}/abandon"
    wrong = client.post(address, {"confirm": "near"}, content_type="application/json")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "not_confirmed")
    assert client.post(address, {"confirm": "far"}, content_type="application/json").status_code == 204
    assert lost.states()["queue"] == "deleted"
    assert client.post(address, {"confirm": "far"}, content_type="application/json").status_code == 404


def test_a_cluster_that_was_never_heard_of_can_be_given_up_too(lost: Lost) -> None:
    Cluster.objects.as_system().filter(pk=lost.cluster.pk).update(state=ClusterState.PENDING, version="")
    lost.cluster.refresh_from_db()
    lost.abandon()
    assert lost.cluster.state == ClusterState.REMOVED


def test_what_is_on_other_clusters_lives_on(lost: Lost) -> None:
    other = make.queue(in_team=lost.queue.team)
    kept = storage.create(actor=lost.actor, queue=other, name="data", size_bytes=GIB)
    lost.abandon()
    for row in (other, kept):
        row.refresh_from_db()
    assert (other.state, kept.state) == ("ready", "creating")
    assert Reservation.objects.as_system().filter(queue=other, released_at=None).exists()


def test_nothing_can_be_made_there_any_more(lost: Lost) -> None:
    lost.abandon()
    with pytest.raises((Conflict, NotFound, Invalid)):
        instances.create(actor=lost.actor, queue=lost.queue.name, image="jupyter", size="small")
    with pytest.raises(Conflict):
        quotas.create(
            actor=make.actor(lost.admin), name="again", team=lost.queue.team, cluster=lost.cluster,
            quota=quotas.quota_of(lost.queue),
        )  # fmt: skip
    assert lost.instance.created_at < timezone.now()


def test_a_cluster_that_answers_offers_no_such_way(lost: Lost) -> None:
    Cluster.objects.as_system().filter(pk=lost.cluster.pk).update(state=ClusterState.CONNECTED)
    page = browser(lost.admin).get(f"/clusters/{lost.cluster.pk}").content.decode()
    assert "/abandon" not in page
    page = browser(lost.admin).get(f"/clusters/{lost.cluster.pk}/abandon").content.decode()
    assert "The cluster answers, so it cannot be given up" in page
