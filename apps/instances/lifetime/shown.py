"""An instance's lifetime as pages and REST tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.instances.lifetime import keeping
from apps.instances.lifetime.judging import Facts, end_of
from apps.instances.lifetime.keeping import Offer
from apps.instances.lifetime.rows import Cause, Lifetime
from apps.instances.models import Instance
from apps.instances.states import LAUNCHED, InstanceState
from apps.storage.models import Volume
from apps.tenants.lifetimes import BUILT_IN, DEFAULTS, Policies, Policy
from apps.tenants.models import LifetimeRule

#: What looks find, in words; the names are `kubekit.activity`'s.
SIGNALS = {
    "kernels": _("a notebook"),
    "terminals": _("a terminal"),
    "editor": _("VS Code in the browser"),
    "ssh": _("an SSH session"),
    "cpu": _("programs that use the CPU"),
    "gpu": _("programs that use a GPU"),
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What holds for one instance now. Seconds where a name ends in ``_s``; ``warned_for`` while a warning stands."""

    policy: Policy
    ends_at: datetime | None = None
    keep_until: datetime | None = None
    warned_for: str = ""
    stops_at: datetime | None = None
    idle_s: int = 0
    looked_at: datetime | None = None
    last_active_at: datetime | None = None
    active_by: Sequence[str] = ()
    problem: str = ""

    @property
    def idle_limit_s(self) -> int:
        """Idle for so long, it is stopped; 0: never."""
        return round(self.policy.idle.total_seconds())

    @property
    def keep_limit_s(self) -> int:
        """For so long it may be kept at a time; 0: not at all."""
        return round(self.policy.longest_keep.total_seconds())

    @property
    def active_words(self) -> list[str]:
        """What the last look found going on, in the active language."""
        return [str(SIGNALS.get(name, name)) for name in self.active_by]

    @property
    def keep_offers(self) -> Sequence[Offer]:
        """For how long it may be kept."""
        return keeping.offers(self.policy.longest_keep) if self.policy.longest_keep else ()

    @property
    def end_offers(self) -> Sequence[Offer]:
        """When it may end."""
        return keeping.offers(self.policy.longest_lease)

    @property
    def is_idle_warning(self) -> bool:
        """Whether it is idleness that the warning is for."""
        return self.warned_for == Cause.IDLE


def of(instance: Instance, policy: Policy) -> Shown:
    """What to show of an instance that was read with its ``lifetime``."""
    life: Lifetime | None = getattr(instance, "lifetime", None)
    launched, now = instance.state in LAUNCHED, timezone.now()
    facts = Facts(
        state=instance.state,
        started_at=instance.start_requested_at if launched else None,
        ends_at=life.ends_at if life is not None else None,
        keep_until=life.keep_until if life is not None else None,
    )
    end = end_of(facts, policy, now=now)
    if not launched and end is not None and end <= now:
        end = None  # an earlier launch's
    if life is None:
        return Shown(policy=policy, ends_at=end)
    kept = life.keep_until if life.keep_until is not None and life.keep_until > now and launched else None
    if instance.state != InstanceState.RUNNING or life.launch != instance.launch:
        return Shown(policy=policy, ends_at=end, keep_until=kept)
    return Shown(
        policy=policy,
        ends_at=end,
        keep_until=kept,
        warned_for=life.warned_for,
        stops_at=life.stops_at if life.warned_for else None,
        idle_s=life.idle_s,
        looked_at=life.looked_at,
        last_active_at=life.last_active_at,
        active_by=tuple(life.active_by),
        problem=life.problem,
    )


def put_on(instances: Iterable[Any]) -> None:
    """Give each row its ``shown``, in one statement for all of them."""
    policies = Policies()
    for instance in instances:
        instance.shown = of(instance, policies.of(instance.queue.team_id))


def with_ends(rows: QuerySet[Instance]) -> QuerySet[Instance]:
    """The rows with what the longest lease of their team is, for `put_ends_on`: no statement more for a list."""
    common = LifetimeRule.objects.as_system().filter(pk=DEFAULTS).values("lease_hours")
    hours = Coalesce("queue__team__lifetime_rule__lease_hours", Subquery(common), Value(BUILT_IN["lease_hours"]))
    return rows.annotate(lease_hours=hours)


def put_ends_on(instances: Iterable[Any]) -> None:
    """Give each row of `with_ends` its ``shown``, as far as its end is concerned."""
    for instance in instances:
        instance.shown = of(instance, Policy(longest_lease=timedelta(hours=instance.lease_hours)))


@dataclass(frozen=True, kw_only=True)
class Held:
    """What an instance at rest still holds: its volumes, of their queue's storage."""

    volumes: Sequence[Volume]
    bytes: int
    limit: int

    @classmethod
    def by(cls, instance: Instance) -> Held:
        """Home first. A volume that others mount too counts here as there."""
        volumes = [instance.home, *(mount.volume for mount in instance.mounted)]
        found = {volume.pk: volume for volume in volumes}
        return cls(
            volumes=list(found.values()),
            bytes=sum(volume.size_bytes for volume in found.values()),
            limit=instance.queue.storage_bytes,
        )
