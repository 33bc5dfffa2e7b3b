"""How long a team's instances run: the administrator's defaults and limits, by page and REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.core.errors import Forbidden, Invalid
from apps.core.models import AuditEntry
from apps.tenants import lifetimes
from apps.tenants.lifetimes import Policies
from apps.tenants.models import Role
from tests.tenants import make

pytestmark = pytest.mark.django_db


def signed_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_without_a_rule_nothing_is_ever_stopped() -> None:
    policy = Policies().of(make.team().pk)
    assert (policy.idle, policy.longest_lease) == (timedelta(), timedelta())
    assert policy.longest_keep == timedelta(days=7)
    assert not Policies().any_can_stop


def test_a_team_has_the_default_until_it_has_a_rule_of_its_own_and_again_afterwards() -> None:
    admin, one, other = make.actor(make.admin()), make.team(), make.team()
    lifetimes.set_rule(actor=admin, team=None, idle_minutes=240, warning_minutes=20)
    lifetimes.set_rule(actor=admin, team=one, idle_minutes=0, lease_hours=24)
    policies = Policies()
    assert policies.of(one.pk).idle == timedelta()
    assert policies.of(one.pk).longest_lease == timedelta(hours=24)
    assert policies.of(one.pk).warning == policies.of(other.pk).warning == timedelta(minutes=20)
    assert policies.of(other.pk).idle == timedelta(hours=4)
    assert policies.any_can_stop
    lifetimes.set_rule(actor=admin, team=one, idle_minutes=None)
    assert Policies().of(one.pk).idle == timedelta(hours=4)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"idle_minutes": 9}, "idle_minutes"),
        ({"idle_minutes": -1}, "idle_minutes"),
        ({"idle_minutes": 10**12}, "idle_minutes"),
        ({"warning_minutes": 1}, "warning_minutes"),
        ({"idle_minutes": 20, "warning_minutes": 11}, "warning_minutes"),
        ({"lease_hours": 10**9}, "lease_hours"),
        ({"keep_hours": -5}, "keep_hours"),
    ],
)
def test_times_that_make_no_sense_are_refused_beside_their_field(values: dict[str, int], field: str) -> None:
    team = make.team()
    with pytest.raises(Invalid) as refusal:
        lifetimes.set_rule(actor=make.actor(make.admin()), team=team, **values)
    assert field in refusal.value.errors
    assert Policies().own(team.pk) == dict.fromkeys(lifetimes.BUILT_IN)


def test_administrators_alone_set_it_and_it_is_audited() -> None:
    team = make.team()
    for person in (make.user(role_in=team), make.user(role_in=team, role=Role.ADMIN)):
        with pytest.raises(Forbidden):
            lifetimes.set_rule(actor=make.actor(person), team=team, idle_minutes=60)
        assert signed_in(person).get(f"/teams/{team.pk}/lifetime").status_code == 403
        assert signed_in(person).get("/teams/default-lifetime").status_code == 403
        answer = signed_in(person).patch(
            f"/api/v1/teams/{team.pk}/lifetime", {"idle_minutes": 60}, content_type="application/json"
        )
        assert answer.status_code == 403
    lifetimes.set_rule(actor=make.actor(make.admin()), team=team, idle_minutes=60)
    lifetimes.set_rule(actor=make.actor(make.admin()), team=team, idle_minutes=60)  # the same again is no change
    told = AuditEntry.objects.as_system().get(verb="team.lifetime")
    assert (told.object_id, told.detail["after"]) == (team.pk, {"idle_minutes": 60})


def test_by_rest_what_is_named_is_set_and_the_rest_stays() -> None:
    team, client = make.team(), signed_in(make.admin())
    address = f"/api/v1/teams/{team.pk}/lifetime"
    assert client.get(address).json()["idle_minutes"] == 0
    client.patch(address, {"idle_minutes": 60}, content_type="application/json")
    answer = client.patch(address, {"keep_hours": 48}, content_type="application/json").json()
    assert (answer["idle_minutes"], answer["keep_hours"], answer["own"]["lease_hours"]) == (60, 48, None)
    answer = client.patch("/api/v1/teams/default-lifetime", {"lease_hours": 72}, content_type="application/json")
    assert client.get(address).json()["lease_hours"] == 72
    refusal = client.patch(address, {"warning_minutes": 40}, content_type="application/json")
    assert (refusal.status_code, refusal.json()["code"]) == (422, "lifetime_invalid")


def test_the_form_sets_it_and_the_teams_page_says_it_to_every_member() -> None:
    team, admin = make.team(), signed_in(make.admin())
    member = signed_in(make.user(role_in=team))
    assert "not stopped for being idle" in member.get(f"/teams/{team.pk}").content.decode()
    page = admin.get(f"/teams/{team.pk}/lifetime").content.decode()
    assert "Left empty, it is 15." in page
    answer = admin.post(f"/teams/{team.pk}/lifetime", {"idle_minutes": "120", "warning_minutes": "", "keep_hours": "0"})
    assert answer.status_code == 302
    page = member.get(f"/teams/{team.pk}").content.decode()
    assert "stopped after 2 h without activity, and warned of 15 min before" in page
    assert "not allowed" in page
    assert "default-lifetime" not in page
    refusal = admin.post("/teams/default-lifetime", {"idle_minutes": "5"})
    assert refusal.status_code == 422
    assert "At least 10 minutes" in refusal.content.decode()
    assert admin.post("/teams/default-lifetime", {"lease_hours": "48"}).status_code == 302
    assert "at most 2 days" in member.get(f"/teams/{team.pk}").content.decode()
