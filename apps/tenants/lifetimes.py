"""How long instances of a team run: the defaults and limits that administrators set, as values.

Nothing is stopped by a rule that nobody set: without one, idle instances run on and leases have no end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.translation import gettext as _

from apps.clusters.services import require_admin
from apps.core import audit, live, wake
from apps.core.actors import Actor
from apps.core.errors import Invalid
from apps.tenants.models import LifetimeRule, Team

#: The row that holds the defaults for all teams.
DEFAULTS = UUID(int=0)
BUILT_IN: Mapping[str, int] = {"idle_minutes": 0, "warning_minutes": 15, "lease_hours": 0, "keep_hours": 7 * 24}
#: Below this a coffee is an idle period.
SHORTEST_IDLE_MINUTES = 10
SHORTEST_WARNING_MINUTES = 2
MOST_MINUTES = 60 * 24 * 90
MOST_HOURS = 24 * 366


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What holds for the instances of one team. ``idle`` zero: never stopped for being idle; ``longest_lease`` zero:
    no launch has an end of its own; ``longest_keep`` zero: nobody may say *keep until*.
    """

    idle: timedelta = timedelta()
    warning: timedelta = timedelta(minutes=BUILT_IN["warning_minutes"])
    longest_lease: timedelta = timedelta()
    longest_keep: timedelta = timedelta(hours=BUILT_IN["keep_hours"])


class Policies:
    """The rules of all teams, read in one statement."""

    def __init__(self) -> None:
        rows = LifetimeRule.objects.as_system().values("team_id", *BUILT_IN)
        self._rules: dict[UUID | None, Mapping[str, Any]] = {row["team_id"]: row for row in rows}

    def of(self, team_id: UUID) -> Policy:
        """What holds for this team."""
        values = self.values(team_id)
        return Policy(
            idle=timedelta(minutes=values["idle_minutes"]),
            warning=timedelta(minutes=values["warning_minutes"]),
            longest_lease=timedelta(hours=values["lease_hours"]),
            longest_keep=timedelta(hours=values["keep_hours"]),
        )

    def values(self, team_id: UUID | None) -> dict[str, int]:
        """The same as numbers; None: the defaults."""
        own, common = self._rules.get(team_id, {}), self._rules.get(None, {})
        return {name: _first(own.get(name), common.get(name), built_in) for name, built_in in BUILT_IN.items()}

    def own(self, team_id: UUID | None) -> dict[str, int | None]:
        """What was set for this team itself."""
        row = self._rules.get(team_id, {})
        return {name: row.get(name) for name in BUILT_IN}

    @property
    def any_can_stop(self) -> bool:
        """Whether any rule can lead to a warning or a stop."""
        return any(row["idle_minutes"] or row["lease_hours"] for row in self._rules.values())


def _first(*found: int | None) -> int:
    return next(value for value in found if value is not None)


def set_rule(*, actor: Actor, team: Team | None, **values: int | None) -> None:
    """Set what is named of a team's rule (of the defaults, without a team); None goes back to the default.

    Raises ``Forbidden`` for others than platform administrators, ``Invalid`` beside the field.
    """
    require_admin(actor)
    _check(values)
    with transaction.atomic():
        pk = DEFAULTS if team is None else team.pk
        LifetimeRule.objects.as_system().get_or_create(pk=pk, defaults={"team": team})
        rule = LifetimeRule.objects.as_system().select_for_update(of=("self",)).get(pk=pk)
        changed = {name: value for name, value in values.items() if getattr(rule, name) != value}
        if not changed:
            return
        before = {name: getattr(rule, name) for name in changed}
        for name, value in changed.items():
            setattr(rule, name, value)
        rule.save(update_fields=[*changed, "updated_at"])
        _check_together(Policies(), team)
        detail = {"before": before, "after": changed}
        audit.record(actor=actor, verb="team.lifetime", obj=team or rule, detail=detail)
        wake.notify(wake.LIFETIMES)
        if team is not None:
            live.announce(team)


def _check(values: Mapping[str, int | None]) -> None:
    errors: dict[str, Any] = {}
    for name, value in values.items():
        most = MOST_MINUTES if name.endswith("minutes") else MOST_HOURS
        least = SHORTEST_WARNING_MINUTES if name == "warning_minutes" else 0
        if value is None:
            continue
        if name == "idle_minutes" and 0 < value < SHORTEST_IDLE_MINUTES:
            errors[name] = _("At least %(least)d minutes, or 0 for never.") % {"least": SHORTEST_IDLE_MINUTES}
        elif not least <= value <= most:
            errors[name] = _("Between %(least)d and %(most)d.") % {"least": least, "most": most}
    if errors:
        raise Invalid(
            _("These times cannot be used."),
            code="lifetime_invalid",
            next=_("Correct what is said beside each of them."),
            errors=errors,
        )


def _check_together(policies: Policies, team: Team | None) -> None:
    """A warning that begins with the idleness itself would stop nobody later than promised, and annoy everybody."""
    values = policies.values(team.pk if team is not None else None)
    if values["idle_minutes"] and values["warning_minutes"] * 2 > values["idle_minutes"]:
        most = values["idle_minutes"] // 2
        raise Invalid(
            _("The warning would come too soon after the last activity."),
            code="lifetime_invalid",
            next=_("Warn at most half of the idle time before."),
            errors={"warning_minutes": _("At most %(most)d, half of the idle time.") % {"most": most}},
        )
