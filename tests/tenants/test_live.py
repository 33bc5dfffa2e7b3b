"""Who hears of changes: one's own queues and teams, and no longer after one has left."""

from __future__ import annotations

import pytest

from apps.core import live
from apps.tenants import teams
from tests.tenants import make

pytestmark = pytest.mark.django_db


def test_members_hear_of_their_queues_and_teams_until_they_leave(django_assert_num_queries) -> None:
    queue, other = make.queue(), make.queue()
    person = make.user(role_in=queue.team)
    actor = make.actor(person)
    with django_assert_num_queries(1):
        found = live.groups_for(actor)
    assert found == {live.group(queue.pk.hex), live.group(queue.team_id.hex)}
    teams.remove_member(actor=actor, team=queue.team, user=person)
    assert live.groups_for(actor) == set()
    everything = live.groups_for(make.actor(make.admin()))
    assert {live.ADMINS, live.group(queue.pk.hex), live.group(other.pk.hex)} <= everything
