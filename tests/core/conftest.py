"""People, a team and a queue: the least that stateful rows need."""

from __future__ import annotations

from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.core import actors
from apps.storage.models import Volume
from apps.tenants.models import Membership, Queue, Role, Team, User


@pytest.fixture
def user(db: None) -> User:
    """A member of the team."""
    return User.objects.create_user("ada", password="a-long-password")


@pytest.fixture
def queue(user: User) -> Queue:
    """A queue whose team has ``user`` as a member."""
    cluster = Cluster.objects.create(
        name="c", server="https://c", credentials="{}", apps_domain="a.test", state="connected"
    )
    team = Team.objects.create(name="t")
    Membership.objects.create(team=team, user=user, role=Role.MEMBER)
    return Queue.objects.create(
        name="q",
        team=team,
        cluster=cluster,
        namespace="q-1",
        cpu_millis=4000,
        memory_bytes=2**33,
        storage_bytes=2**40,
        state="ready",
    )


@pytest.fixture
def volume(queue: Queue, user: User) -> Volume:
    """A stateful, claimable row."""
    return Volume.objects.create(name="v", queue=queue, owner=user, size_bytes=2**30, claim="v", state="creating")


@pytest.fixture
def actor(user: User) -> Any:
    """The member as an actor."""
    return actors.from_user(user)
