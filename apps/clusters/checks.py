"""What a cluster offers and what the portal's account may do in it, line by line, asked of the cluster itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext as _

from apps.clusters import access
from apps.clusters.models import Cluster, Exposure
from kubekit import client
from kubekit.errors import KubeError
from kubekit.kinds import kind_named

OLDEST_MINOR = 29
"""Server-side apply with quota texts and the pod fields that kubekit uses are the same from here on."""

Result = Literal["good", "missing", "note"]

NEEDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Namespace", ("get", "list", "patch", "delete")),
    ("ResourceQuota", ("get", "list", "patch", "delete")),
    ("LimitRange", ("get", "patch")),
    ("NetworkPolicy", ("get", "patch")),
    ("PersistentVolumeClaim", ("get", "list", "watch", "patch", "delete")),
    ("StatefulSet", ("get", "list", "watch", "patch", "delete")),
    ("Service", ("get", "list", "patch", "delete")),
    ("Ingress", ("get", "list", "patch", "delete")),
    ("Secret", ("get", "patch", "delete")),
    ("Pod", ("get", "list", "watch", "create", "patch", "delete")),
    ("Event", ("list", "watch")),
    ("Node", ("list", "watch")),
    ("StorageClass", ("get", "list")),
)
SUBRESOURCES = (("Pod", "log", "get"), ("Pod", "exec", "create"), ("Pod", "portforward", "create"))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the check page: what, whether it is there, and the command that mends it."""

    what: str
    result: Result
    detail: str = ""
    fix: str = ""

    @property
    def is_command(self) -> bool:
        """Whether ``fix`` is something to type."""
        return self.fix.startswith("kubectl ")


def check(cluster: Cluster) -> list[Finding]:
    """Ask the cluster. Never raises for what the cluster answers: not answering is a finding, too."""
    found: list[Finding] = []
    try:
        for line in _lines(cluster, access.connect(cluster)):
            found.append(line)  # noqa: PERF402 - what was found before a failure is kept
    except KubeError as error:
        found.append(Finding(what=_("The cluster answers"), result="missing", detail=error.message))
    return found


def _lines(cluster: Cluster, server: client.Cluster) -> Iterator[Finding]:
    yield _version(server.version())
    yield from _permissions(server)
    yield _classes(
        _("Storage classes"),
        list(server.list("StorageClass")),
        chosen=cluster.storage_class,
        default="storageclass.kubernetes.io/is-default-class",
    )
    if cluster.exposure == Exposure.INGRESS:
        yield _classes(
            _("Ingress classes"),
            list(server.list("IngressClass")),
            chosen=cluster.ingress_class,
            default="ingressclass.kubernetes.io/is-default-class",
        )
    yield _gpus(list(server.list("Node")))


def _version(answer: dict[str, Any]) -> Finding:
    minor = "".join(char for char in str(answer.get("minor", "")) if char.isdigit())
    good = minor.isdigit() and int(minor) >= OLDEST_MINOR
    return Finding(
        what=_("Kubernetes version"),
        result="good" if good else "note",
        detail=str(answer.get("gitVersion", "?")),
        fix="" if good else _("The portal is tested with 1.%(minor)d and later.") % {"minor": OLDEST_MINOR},
    )


def _permissions(server: client.Cluster) -> Iterator[Finding]:
    for kind, verbs in NEEDED:
        missing = [verb for verb in verbs if not server.access_review(verb=verb, kind=kind)]
        yield _permission(kind, verbs, missing)
    for kind, subresource, verb in SUBRESOURCES:
        allowed = server.access_review(verb=verb, kind=kind, subresource=subresource)
        yield _permission(f"{kind}/{subresource}", (verb,), [] if allowed else [verb])


def _permission(what: str, verbs: tuple[str, ...], missing: list[str]) -> Finding:
    kind, _slash, subresource = what.partition("/")
    row = kind_named(kind)
    resource = f"{row.plural}/{subresource}" if subresource else row.plural
    group = f".{row.group}" if row.group else ""
    return Finding(
        what=_("May %(verbs)s %(kind)s") % {"verbs": ", ".join(verbs), "kind": what},
        result="missing" if missing else "good",
        detail=_("not allowed: %(verbs)s") % {"verbs": ", ".join(missing)} if missing else "",
        fix=(
            f"kubectl create clusterrole mlportal-{row.plural}{'-' + subresource if subresource else ''} "
            f"--verb={','.join(verbs)} --resource={resource}{group}"
            if missing
            else ""
        ),
    )


def _classes(what: str, found: list[dict[str, Any]], *, chosen: str, default: str) -> Finding:
    names = [obj["metadata"]["name"] for obj in found]
    defaults = [
        obj["metadata"]["name"] for obj in found if (obj["metadata"].get("annotations") or {}).get(default) == "true"
    ]
    detail = ", ".join(f"{name} *" if name in defaults else name for name in names) or _("none")
    good = chosen in names if chosen else bool(defaults)
    fix = ""
    if not good:
        fix = (
            _("The class “%(name)s” does not exist; choose one that does.") % {"name": chosen}
            if chosen
            else _("No class is the default; choose one in the cluster's settings.")
        )
    return Finding(what=what, result="good" if good else "missing", detail=detail, fix=fix)


def _gpus(nodes: list[dict[str, Any]]) -> Finding:
    sums: dict[str, int] = {}
    for node in nodes:
        for name, count in ((node.get("status") or {}).get("allocatable") or {}).items():
            if "/" in name and "hugepages" not in name and str(count).isdigit():
                sums[name] = sums.get(name, 0) + int(count)
    detail = ", ".join(f"{count} × {name}" for name, count in sorted(sums.items())) or _("none")
    return Finding(what=_("GPUs and other devices"), result="note", detail=detail)
