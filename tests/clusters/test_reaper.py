"""Objects without a row are recorded, and removed after the grace; nothing else is."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.clusters import reaper, watching
from apps.clusters.models import Cluster, Orphan
from apps.instances.models import Instance
from kubekit import names
from kubekit.errors import Conflict, Forbidden, KubeError, NotFound
from tests.instances.conftest import GATEWAY, World, world  # noqa: F401 - the fixture
from tests.instances.fakes import InstanceCluster


def forget(instance: Instance) -> None:
    """As after a restored database: the objects are there, the row is not."""
    Instance.objects.as_system().filter(pk=instance.pk).delete()


def grow_old() -> None:
    past = timezone.now() - timedelta(seconds=301)
    Orphan.objects.as_system().update(first_seen_at=past)


def test_objects_of_a_live_row_stay(world: World) -> None:  # noqa: F811
    world.running()
    assert reaper.reap(world.queue.cluster) == []
    assert not Orphan.objects.as_system().exists()


def test_orphans_are_recorded_first_and_removed_after_the_grace(world: World) -> None:  # noqa: F811
    instance = world.running()
    kept = world.running()
    forget(instance)
    assert reaper.reap(world.queue.cluster) == []
    kinds = sorted(Orphan.objects.as_system().values_list("kind", flat=True))
    assert kinds == ["Ingress", "Pod", "Secret", "Service", "StatefulSet"]
    assert reaper.reap(world.queue.cluster) == []
    grow_old()
    removed = reaper.reap(world.queue.cluster)
    assert removed[0].kind == "Ingress"
    assert len(removed) == 5
    own = ("Ingress", "StatefulSet", "Service", "Secret", "Pod")
    stored = [obj for (kind, _, _), obj in world.cluster.objects.items() if kind in own]
    left = {obj["metadata"]["labels"]["mlportal.io/id"] for obj in stored}
    assert left == {str(kept.pk)}


def test_a_route_of_the_gateway_that_was_left_behind_is_found_and_goes_first(world: World) -> None:  # noqa: F811
    Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(**GATEWAY)
    forget(world.running())
    # Found also after the cluster was switched back.
    cluster = Cluster.objects.as_system().get(pk=world.queue.cluster_id)
    cluster.exposure = "ingress"
    reaper.reap(cluster)
    assert "HTTPRoute" in Orphan.objects.as_system().values_list("kind", flat=True)
    grow_old()
    assert reaper.reap(cluster)[0].kind == "HTTPRoute"
    assert "HTTPRoute" not in world.cluster.kinds()


@pytest.mark.parametrize("error", [NotFound("no such resource", status=404), Forbidden("no", status=403)])
@pytest.mark.parametrize(("exposure", "unused"), [("ingress", "HTTPRoute"), ("httproute", "Ingress")])
def test_routes_that_the_cluster_does_not_use_need_neither_be_served_nor_allowed(
    world: World,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    error: KubeError,
    exposure: str,
    unused: str,
) -> None:
    Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(**{**GATEWAY, "exposure": exposure})
    cluster = Cluster.objects.as_system().get(pk=world.queue.cluster_id)
    forget(world.running())
    ask = InstanceCluster.list
    without = {unused}

    def refuse(self: InstanceCluster, kind: str, *given: object, **more: object) -> object:
        if kind in without:
            raise error
        return ask(self, kind, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(InstanceCluster, "list", refuse)
    reaper.reap(cluster)
    assert Orphan.objects.as_system().count() == 5
    without.add("HTTPRoute" if unused == "Ingress" else "Ingress")
    with pytest.raises(type(error)):
        reaper.reap(cluster)


def test_another_object_of_the_same_name_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    forget(world.running())
    reaper.reap(world.queue.cluster)
    grow_old()

    def refuse(self: InstanceCluster, kind: str, *_: object, uid: str | None = None, **__: object) -> None:
        assert uid
        raise Conflict("the UID in the precondition does not match", status=409)

    monkeypatch.setattr(InstanceCluster, "delete", refuse)
    assert reaper.reap(world.queue.cluster) == []
    assert not Orphan.objects.as_system().filter(removed_at__isnull=False).exists()


def test_a_silent_cluster_is_left_for_the_next_round(world: World) -> None:  # noqa: F811
    forget(world.running())
    world.cluster.away = True
    reaper.reap_all()
    assert not Orphan.objects.as_system().exists()


def test_what_a_reaper_removed_before_it_died_is_noted_by_the_next(world: World) -> None:  # noqa: F811
    forget(world.running())
    reaper.reap(world.queue.cluster)
    world.cluster.objects.clear()
    assert reaper.reap(world.queue.cluster) == []
    assert not Orphan.objects.as_system().filter(removed_at__isnull=True).exists()


def looks(rounds: reaper.Rounds, count: int) -> list[bool]:
    return [rounds.worth_it() for _ in range(count)]


def test_where_nothing_happens_it_looks_twice_and_then_seldom(
    world: World,  # noqa: F811
    django_assert_max_num_queries: Any,
) -> None:
    rounds = reaper.Rounds()
    reaper._stirred.clear()
    assert looks(rounds, 2) == [True, True]
    with django_assert_max_num_queries(2 * (reaper.SELDOM - 2)):
        assert looks(rounds, reaper.SELDOM - 2) == [False] * (reaper.SELDOM - 2)
    assert looks(rounds, 2) == [True, False]


def test_whatever_is_done_has_it_look_again(world: World) -> None:  # noqa: F811
    rounds = reaper.Rounds()
    looks(rounds, 3)
    instance = world.create()
    assert looks(rounds, 3) == [True, True, False], "what is in the audit log"
    pod = {"metadata": {"labels": {names.ID: str(instance.pk)}}}
    for handler in watching.registry.objects["pods", "instance"]:
        handler(uuid.uuid4(), [("ADDED", pod)])
    assert looks(rounds, 3) == [True, True, False], "a pod that the watch tells of, whoever made it"
    forget(world.running())
    reaper.reap(world.queue.cluster)
    assert looks(rounds, 4) == [True] * 4, "as long as an orphan waits"
    Orphan.objects.as_system().update(removed_at=timezone.now())
    assert looks(rounds, 2) == [True, False]


def test_a_calm_round_asks_no_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    rounds = reaper.Rounds()
    looked: list[str] = []
    monkeypatch.setattr(reaper, "reap_all", lambda: looked.append("look"))
    for _ in range(5):
        reaper.one_round(rounds)
    assert looked == ["look", "look"]
