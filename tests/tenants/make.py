"""Rows for tests, with the least that each needs. Names count up so that a test never meets another's."""

from __future__ import annotations

import itertools
from typing import Any

from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import actors
from apps.core.actors import Actor
from apps.tenants.models import Membership, Queue, Role, Team, User
from apps.tenants.states import QueueState
from kubekit import names

GIB = 1 << 30
_number = itertools.count(1)


def cluster(**columns: Any) -> Cluster:
    """A connected cluster that nothing answers for."""
    given: dict[str, Any] = {
        "name": f"cluster-{next(_number)}",
        "server": "http://127.0.0.1:1",
        "credentials": '{"server": "http://127.0.0.1:1", "token": "t"}',
        "apps_domain": "apps.localhost",
        "state": ClusterState.CONNECTED,
        "trusted": True,
        **columns,
    }
    return Cluster.objects.create(**given)


def team(**columns: Any) -> Team:
    """A team without members."""
    return Team.objects.create(**{"name": f"team-{next(_number)}", **columns})


def user(*, role_in: Team | None = None, role: Role = Role.MEMBER, **columns: Any) -> User:
    """A person, in a team when one is given."""
    made: User = User.objects.create_user(**{"username": f"user-{next(_number)}", **columns})
    if role_in is not None:
        Membership.objects.create(team=role_in, user=made, role=role)
    return made


def admin(**columns: Any) -> User:
    """A platform administrator."""
    return user(is_platform_admin=True, **columns)


def queue(*, in_team: Team | None = None, on: Cluster | None = None, **columns: Any) -> Queue:
    """A ready queue: 4 CPU, 8 GiB, 100 GiB storage, no GPU, no oversell."""
    given: dict[str, Any] = {
        "name": f"queue-{next(_number)}",
        "team": in_team or team(),
        "cluster": on or cluster(),
        "cpu_millis": 4000,
        "memory_bytes": 8 * GIB,
        "storage_bytes": 100 * GIB,
        "state": QueueState.READY,
        **columns,
    }
    made = Queue(**given)
    made.namespace = names.namespace_name(made.name, made.pk)
    made.save()
    made.refresh_from_db()
    return made


def actor(person: User) -> Actor:
    """The person as services see them."""
    return actors.from_user(person)
