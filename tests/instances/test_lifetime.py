"""F48 and R53 on rows: looks are counted, owners are warned on every way, then it is stopped and says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone

from apps.clusters import access
from apps.core import control
from apps.core.models import AuditEntry, OutboxMessage
from apps.instances import services
from apps.instances.lifetime import keeping, watching
from apps.instances.lifetime.rows import Cause, Lifetime
from apps.instances.lifetime.watching import Rounds
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from apps.tenants import ledger, lifetimes
from kubekit import activity
from kubekit.activity import Look
from kubekit.errors import Unreachable
from tests.instances.conftest import World
from tests.tenants import make

QUIET = Look(cpu=100, ssh=0, typed="0:1", shown="0:1", kernels="[]", busy=0, terminals="[]")


@dataclass
class Inside:
    """What looks find and terminals are told, and the clock of the rounds."""

    look: Look | None = QUIET
    now: float = 1000.0
    looks: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def rounds(self) -> Rounds:
        """A process that looks: after a restart it is another one."""
        return Rounds(clock=lambda: self.now, spread=False)

    def after(self, rounds: Rounds, seconds: float) -> None:
        """One round, so many seconds after the last one."""
        self.now += seconds
        async_to_sync(rounds.round)()


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    found = Inside()

    async def look(streams: Any, namespace: str, pod: str, container: str, *, shell: str) -> Look:
        found.looks.append(pod)
        if found.look is None:
            raise Unreachable("no answer")
        return found.look

    async def tell(streams: Any, namespace: str, pod: str, container: str, text: str, *, shell: str) -> None:
        found.told.append(text)

    class Way:
        async def __aenter__(self) -> Way:
            return self

        async def __aexit__(self, *error: object) -> None:
            return None

    async def here(work: Callable[..., Any], *args: Any) -> Any:
        """Database work in the test's own transaction."""
        return await sync_to_async(work, thread_sensitive=True)(*args)

    monkeypatch.setattr(control, "in_thread", here)
    monkeypatch.setattr(activity, "look", look)
    monkeypatch.setattr(activity, "tell", tell)
    monkeypatch.setattr(access, "credentials_of", lambda cluster: None)
    monkeypatch.setattr(watching, "Streams", lambda credentials: Way())
    return found


def rule(world: World, **values: int | None) -> None:
    """What the administrator sets for the team."""
    lifetimes.set_rule(actor=make.actor(make.admin()), team=world.queue.team, **values)


def life_of(instance: Instance) -> Lifetime:
    found: Lifetime = Lifetime.objects.as_system().get(pk=instance.pk)
    return found


def until_warned(inside: Inside, rounds: Rounds, instance: Instance) -> None:
    """Quiet looks until a warning stands."""
    for _ in range(60):
        inside.after(rounds, 100)
        if life_of(instance).warned_for:
            return
    raise AssertionError("never warned")


def test_f48_an_idle_instance_is_warned_of_on_every_way_and_then_stopped_with_the_reason_and_its_quota_is_free(
    world: World, inside: Inside
) -> None:
    rule(world, idle_minutes=60, warning_minutes=10)
    world.owner.email = "owner@example.com"
    world.owner.save(update_fields=["email"])
    instance, rounds = world.running(), inside.rounds()
    began = inside.now
    until_warned(inside, rounds, instance)
    life = life_of(instance)
    assert (life.warned_for, life.idle_s >= 50 * 60) == (Cause.IDLE, True)
    assert life.stops_at is not None
    assert timedelta(minutes=8) < life.stops_at - timezone.now() <= timedelta(minutes=10, seconds=1)
    mail = OutboxMessage.objects.as_system().get(topic="alert.mail").payload
    assert mail["to"] == ["owner@example.com"]
    assert instance.name in mail["subject"]
    assert instance.get_absolute_url() in mail["text"]
    assert len(inside.told) == 1
    assert instance.name in inside.told[0]
    warned = inside.now
    while True:
        inside.after(rounds, 100)
        instance.refresh_from_db()
        if instance.state != InstanceState.RUNNING:
            break
        assert inside.now - warned < 20 * 60
    assert inside.now - warned >= 10 * 60
    assert inside.now - began >= 60 * 60
    assert len(inside.told) == 1
    assert instance.reason_code == "stopped_idle"
    assert not instance.key
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    assert (instance.state, instance.reason_code, instance.reason_params["minutes"]) == ("stopped", "stopped_idle", 60)
    assert world.queue.team.name in instance.reason.sentence
    held = {name for name, share in ledger.usage(world.queue).shares.items() if share.used}
    assert held == {"storage_bytes", "volumes"}
    stops = AuditEntry.objects.as_system().filter(object_id=instance.pk, actor_name="lifetime")
    assert list(stops.order_by("pk").values_list("verb", flat=True)) == ["instance.warn", "instance.stop"]
    assert stops.get(verb="instance.stop").detail["reason"] == "stopped_idle"
    services.start(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.make_pod()
    world.cluster.run_pod()
    assert world.reconcile(instance).reason_code == ""
    inside.after(rounds, 4000)  # F48: it does not stop what was just started again for its old idleness
    assert life_of(instance).idle_s == 0
    instance.refresh_from_db()
    assert instance.state == InstanceState.RUNNING


SIGNALS: dict[str, Callable[[Look, int], Look]] = {
    "kernels": lambda look, step: replace(look, busy=1),
    "kernels that answered": lambda look, step: replace(look, kernels=f'[["k", "{step}"]]'),
    "terminals typed in": lambda look, step: replace(look, typed=f"0:{step}"),
    "terminals that show": lambda look, step: replace(look, shown=f"0:{step}"),
    "terminals of Jupyter": lambda look, step: replace(look, terminals=f'[["1", "{step}"]]'),
    "editor": lambda look, step: replace(look, editor=str(step)),
    "ssh": lambda look, step: replace(look, ssh=1),
    "cpu": lambda look, step: replace(look, cpu=100 + 600 * step),
    "gpu": lambda look, step: replace(look, gpu=40),
}


@pytest.mark.parametrize("signal", SIGNALS)
def test_f48_each_signal_alone_keeps_it_running(world: World, inside: Inside, signal: str) -> None:
    rule(world, idle_minutes=20, warning_minutes=5)
    instance, rounds = world.running(), inside.rounds()
    for step in range(20):
        inside.look = SIGNALS[signal](QUIET, step)
        inside.after(rounds, 100)
    life = life_of(instance)
    assert (life.idle_s, life.warned_for) == (0, "")
    assert life.active_by == [signal.split(maxsplit=1)[0]]
    inside.look = SIGNALS[signal](QUIET, 19) if signal not in {"kernels", "ssh", "gpu"} else QUIET
    until_warned(inside, rounds, instance)  # and without it, idle it is


def test_f48_what_cannot_be_looked_into_is_never_stopped_and_says_so(world: World, inside: Inside) -> None:
    rule(world, idle_minutes=20, warning_minutes=5)
    instance, rounds = world.running(), inside.rounds()
    until_warned(inside, rounds, instance)
    inside.look = None
    for _ in range(30):
        inside.after(rounds, 100)
    life = life_of(instance)
    assert (life.problem, life.idle_s, life.warned_for) == ("no answer", 0, "")
    inside.look = QUIET
    inside.after(rounds, 100)
    assert life_of(instance).idle_s == 0  # the first look after it is only one to compare with
    instance.refresh_from_db()
    assert instance.state == InstanceState.RUNNING


def test_f48_one_failed_look_or_a_restart_of_the_portal_begins_the_whole_period_anew(
    world: World, inside: Inside
) -> None:
    rule(world, idle_minutes=20, warning_minutes=5)
    instance, rounds = world.running(), inside.rounds()
    until_warned(inside, rounds, instance)
    rounds = inside.rounds()  # another process
    inside.after(rounds, 100)
    life = life_of(instance)
    assert (life.idle_s, life.warned_for) == (0, "")
    for _ in range(6):
        inside.after(rounds, 100)
    assert life_of(instance).idle_s >= 500
    inside.look = None
    inside.after(rounds, 100)
    inside.look = QUIET
    inside.after(rounds, 100)
    assert life_of(instance).idle_s == 0


def test_f48_a_clock_that_is_set_a_day_ahead_stops_nothing(
    world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(world, idle_minutes=60, warning_minutes=10, lease_hours=4)
    instance, rounds = world.running(), inside.rounds()
    inside.after(rounds, 100)
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(days=1))
    inside.after(rounds, 15)
    assert life_of(instance).warned_for == Cause.LEASE  # by what the clock says its time is over: a warning, no stop
    inside.after(rounds, 15)
    instance.refresh_from_db()
    assert instance.state == InstanceState.RUNNING
    monkeypatch.setattr(timezone, "now", real)
    inside.after(rounds, 15)
    assert life_of(instance).warned_for == ""
    instance.refresh_from_db()
    assert instance.state == InstanceState.RUNNING


def test_what_the_warning_itself_shows_in_a_terminal_is_no_activity(world: World, inside: Inside) -> None:
    rule(world, idle_minutes=20, warning_minutes=5)
    instance, rounds = world.running(), inside.rounds()
    until_warned(inside, rounds, instance)
    inside.look = replace(QUIET, shown="0:2", terminals='[["1", "2"]]')
    inside.after(rounds, 100)
    assert life_of(instance).warned_for == Cause.IDLE
    inside.look = replace(QUIET, shown="0:3", terminals='[["1", "2"]]')
    inside.after(rounds, 100)
    assert life_of(instance).warned_for == ""


def test_an_end_is_warned_of_and_stops_with_its_own_words_and_needs_no_look(world: World, inside: Inside) -> None:
    instance, rounds = world.running(), inside.rounds()
    keeping.set_end(actor=world.actor, instance=instance, at=timezone.now() + timedelta(minutes=5))
    inside.after(rounds, 15)
    assert life_of(instance).warned_for == Cause.LEASE
    Instance.objects.as_system().update(start_requested_at=timezone.now() - timedelta(hours=1))
    Lifetime.objects.as_system().filter(pk=instance.pk).update(ends_at=timezone.now() - timedelta(seconds=1))
    for _ in range(58):
        inside.after(rounds, 15)
    instance.refresh_from_db()
    assert instance.state == InstanceState.RUNNING  # 14.5 of the warning's 15 minutes
    inside.after(rounds, 15)
    inside.after(rounds, 15)
    instance.refresh_from_db()
    assert (instance.state, instance.reason_code) == (InstanceState.STOPPING, "stopped_at_end")
    assert inside.looks == []


def test_keep_until_withdraws_a_warning_at_once(world: World, inside: Inside) -> None:
    rule(world, idle_minutes=20, warning_minutes=5)
    instance, rounds = world.running(), inside.rounds()
    until_warned(inside, rounds, instance)
    keeping.keep(actor=world.actor, instance=instance, until=timezone.now() + timedelta(hours=1))
    assert life_of(instance).warned_for == ""
    for _ in range(30):
        inside.after(rounds, 100)
    instance.refresh_from_db()
    assert instance.state == InstanceState.RUNNING


def test_a_keep_that_comes_between_the_look_and_the_stop_wins(
    world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(world, idle_minutes=20, warning_minutes=5)
    instance, rounds = world.running(), inside.rounds()
    until_warned(inside, rounds, instance)
    act = watching.acting.act

    def late(*args: Any) -> str | None:
        keeping.keep(actor=world.actor, instance=instance, until=timezone.now() + timedelta(hours=1))
        return act(*args)

    monkeypatch.setattr(watching.acting, "act", late)
    for _ in range(10):
        inside.after(rounds, 100)
    instance.refresh_from_db()
    assert instance.state == InstanceState.RUNNING
    assert len(inside.told) == 1  # nor is it warned of again


def test_without_a_rule_nobody_is_looked_at(world: World, inside: Inside) -> None:
    instance, rounds = world.running(), inside.rounds()
    for _ in range(5):
        inside.after(rounds, 1000)
    assert inside.looks == []
    assert not Lifetime.objects.as_system().filter(pk=instance.pk).exists()


def test_a_silent_cluster_is_asked_a_few_times_a_round_however_many_instances_it_has(
    world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(world, idle_minutes=60)
    first = world.running()
    home = first.home
    for number in range(60):
        Instance.objects.create(
            name=f"n-{number}", owner=world.owner, queue=world.queue, image=world.image, size=world.small, home=home,
            state="running", launch=1,
        )  # fmt: skip
    inside.look = None
    at_once, most = 0, 0

    async def look(*_: Any, **_how: Any) -> Look:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        inside.looks.append("x")
        raise Unreachable("no answer")

    monkeypatch.setattr(activity, "look", look)
    inside.after(inside.rounds(), 1)
    assert len(inside.looks) <= watching.SILENT_AFTER + watching.AT_ONCE
    assert most <= watching.AT_ONCE
    assert Lifetime.objects.as_system().exclude(problem="").count() == 61


def test_the_first_looks_at_many_are_spread_over_the_pace(world: World, inside: Inside) -> None:
    rule(world, idle_minutes=60)
    world.running()
    rounds = Rounds(clock=lambda: inside.now)
    for _ in range(22):
        inside.after(rounds, 15)
    first = rounds.held
    assert len(inside.looks) in {1, 2}
    assert all(held.look is not None for held in first.values())
