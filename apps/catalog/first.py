"""What a new portal starts with, so that the first person can begin at once. Each part is made only once."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import access, installation
from apps.clusters import services as clusters
from apps.clusters.models import Cluster
from apps.clusters.states import ClusterState
from apps.core import actors
from apps.tenants import quotas
from apps.tenants.models import Membership, Queue, Role, Team, User
from apps.tenants.quotas import Quota
from kubekit.credentials import parse_kubeconfig
from kubekit.incluster import IN_CLUSTER

ACTOR = actors.system("bootstrap")
GIB = 1 << 30
SIZES = (
    {"name": "small", "cpu_millis": 500, "memory_bytes": GIB},
    {"name": "medium", "cpu_millis": 1000, "memory_bytes": 2 * GIB},
    {"name": "large", "cpu_millis": 2000, "memory_bytes": 4 * GIB},
    {"name": "gpu-1", "cpu_millis": 2000, "memory_bytes": 4 * GIB, "gpus": 1},
)
IMAGES = (
    {
        "name": "jupyter",
        "reference": "mlportal/jupyter:1",
        "purpose": Purpose.DEV,
        "description": "JupyterLab with Python",
    },
    {
        "name": "python",
        "reference": "mlportal/python:1",
        "purpose": Purpose.TASK,
        "description": "Python for tasks",
    },
)


def make() -> Iterator[str]:
    """Make what is missing; each line says what was made. The line with a password is `PASSWORD_LINE` and it."""
    installation.install_id()
    with transaction.atomic():
        team = _team()
        lines = [*_catalogue(), *_administrator(team)]
    yield from lines
    cluster = _cluster()
    if cluster is None:
        yield f"no kubeconfig at {settings.ENVIRONMENT.kubeconfig} yet: no cluster registered"
    elif not Queue.objects.as_system().exists():
        queue = quotas.create(actor=ACTOR, name="default", team=team, cluster=cluster, quota=quota_for(cluster))
        yield f"made the queue {queue.name} on the cluster {cluster.name}"


def _catalogue() -> Iterator[str]:
    if not Size.objects.as_system().exists():
        Size.objects.bulk_create(Size(position=10 * place, **row) for place, row in enumerate(SIZES, 1))
        yield f"made the sizes {', '.join(str(row['name']) for row in SIZES)}"
    if not Image.objects.as_system().exists():
        Image.objects.bulk_create(Image(position=10 * place, **row) for place, row in enumerate(IMAGES, 1))
        yield f"made the images {', '.join(row['name'] for row in IMAGES)}"


def _team() -> Team:
    team: Team | None = Team.objects.as_system().order_by("created_at").first()
    return team or Team.objects.create(name="default", description="Everybody, to begin with")


PASSWORD_LINE = "administrator password: "  # noqa: S105 - the words before one
"""What `mlportal.prepare` looks for in the command's output."""


def _administrator(team: Team) -> Iterator[str]:
    if User.objects.as_system().exists():
        return
    given = settings.ENVIRONMENT.admin_password
    password = given or secrets.token_urlsafe(12)
    user = User.objects.create_user(username="admin", password=password, is_platform_admin=True)
    Membership.objects.create(team=team, user=user, role=Role.ADMIN)
    yield "made the administrator admin"
    if not given:
        yield f"{PASSWORD_LINE}{password}"


def _cluster() -> Cluster | None:
    """The cluster of ``PORTAL_CLUSTER``, with the credentials and addresses of this start."""
    environment = settings.ENVIRONMENT
    if environment.cluster == IN_CLUSTER:
        return _own_cluster()
    path: Path = environment.kubeconfig
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    alive: QuerySet[Cluster] = Cluster.objects.as_system().exclude(state=ClusterState.REMOVED)
    if environment.cluster_embedded:
        addresses: dict[str, Any] = {
            "apps_domain": environment.apps_domain,
            "apps_scheme": "http",
            "apps_port": environment.http_port,
        }
        found = alive.filter(embedded=True).first()
        if found is None:
            return clusters.register(
                actor=ACTOR, name="local", kubeconfig=text, trusted=True, embedded=True, **addresses
            )
        clusters.replace_credentials(actor=ACTOR, cluster=found, kubeconfig=text, trusted=True)
        clusters.update(actor=ACTOR, cluster=found, **addresses)
        return found
    found = alive.filter(server=parse_kubeconfig(text).server).first()
    if found is not None:
        clusters.replace_credentials(actor=ACTOR, cluster=found, kubeconfig=text, trusted=True)
        return found
    scheme = "http" if clusters.is_local(environment.apps_domain) else "https"
    return clusters.register(
        actor=ACTOR,
        name=_free_name(path),
        kubeconfig=text,
        trusted=True,
        apps_domain=environment.apps_domain,
        apps_scheme=scheme,
    )


def _own_cluster() -> Cluster:
    """The cluster that the portal runs in. Its instances are reached by the same way as the portal."""
    found: Cluster | None = next(
        filter(access.is_own, Cluster.objects.as_system().exclude(state=ClusterState.REMOVED)), None
    )
    if found is not None:
        return found
    origin = urlsplit(settings.PORTAL_ORIGIN)
    return clusters.register(
        actor=ACTOR,
        name=_free_name(Path(IN_CLUSTER)),
        own=True,
        apps_domain=settings.PORTAL_APPS_DOMAIN,
        apps_scheme=origin.scheme,
        apps_port=origin.port or 0,
    )


def _free_name(path: Path) -> str:
    """The file's name without its end, unless a cluster is called that."""
    wanted = re.sub(r"[^A-Za-z0-9-]+", "-", path.stem).strip("-")[:50] or "cluster"
    taken = set(Cluster.objects.as_system().exclude(state=ClusterState.REMOVED).values_list("name", flat=True))
    return next(name for name in (wanted, *(f"{wanted}-{n}" for n in range(2, 1000))) if name not in taken)


def quota_for(cluster: Cluster) -> Quota:
    """4 CPU and 8 GiB, or what the machine has when the cluster is this machine."""
    quota: dict[str, Any] = {"cpu_millis": 4000, "memory_bytes": 8 * GIB, "storage_bytes": 200 * GIB}
    if cluster.embedded:
        disk = shutil.disk_usage(settings.ENVIRONMENT.home.root)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        quota["cpu_millis"] = min(4000, 1000 * (os.cpu_count() or 1))
        quota["memory_bytes"] = min(8 * GIB, memory // GIB * GIB or memory)
        quota["storage_bytes"] = max(20 * GIB, min(200 * GIB, disk.total // GIB * GIB))
    return Quota(**quota)
