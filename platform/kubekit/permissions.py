"""What the portal's account must be allowed in a cluster: the one list, with the reason for each entry.

The check page asks the cluster for each entry, and the ClusterRole that an installation brings is `rules` of the same
list. A server-side apply that makes an object needs ``create`` beside ``patch``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubekit.kinds import kind_named


@dataclass(frozen=True, kw_only=True)
class Permission:
    """Verbs on one resource. Without what is ``optional`` the portal only knows less of the cluster.

    What names an ``exposure`` is needed where instances are reached in that way, and nowhere else.
    """

    kind: str
    verbs: tuple[str, ...]
    subresource: str = ""
    optional: bool = False
    exposure: str = ""

    def needed_with(self, exposure: str) -> bool:
        """Whether the portal cannot do its work without it on a cluster of this exposure."""
        return not self.optional and self.exposure in ("", exposure)

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return kind_named(self.kind).group

    @property
    def resource(self) -> str:
        """As rules name it: ``pods``, ``pods/log``."""
        plural = kind_named(self.kind).plural
        return f"{plural}/{self.subresource}" if self.subresource else plural

    @property
    def full_name(self) -> str:
        """As ``kubectl`` names it: ``statefulsets.apps/scale``."""
        plural = kind_named(self.kind).plural + (f".{self.group}" if self.group else "")
        return f"{plural}/{self.subresource}" if self.subresource else plural


NEEDED: tuple[Permission, ...] = (
    # queues: a namespace with its bounds; listed to find what was changed by hand, and what a check left behind
    Permission(kind="Namespace", verbs=("get", "list", "create", "patch", "delete")),
    Permission(kind="ResourceQuota", verbs=("get", "list", "create", "patch", "delete")),
    Permission(kind="LimitRange", verbs=("list", "create", "patch")),
    Permission(kind="NetworkPolicy", verbs=("list", "create", "patch")),
    # volumes
    Permission(kind="PersistentVolumeClaim", verbs=("get", "list", "watch", "create", "patch", "delete")),
    Permission(kind="StorageClass", verbs=("get", "list")),
    # instances; listed to find what belongs to no row
    Permission(kind="StatefulSet", verbs=("get", "list", "create", "patch", "delete")),
    Permission(kind="StatefulSet", subresource="scale", verbs=("patch",)),
    Permission(kind="Service", verbs=("get", "list", "create", "patch", "delete")),
    Permission(kind="Ingress", verbs=("get", "list", "create", "patch", "delete"), exposure="ingress"),
    Permission(kind="HTTPRoute", verbs=("get", "list", "create", "patch", "delete"), exposure="httproute"),
    Permission(kind="Secret", verbs=("get", "list", "create", "patch", "delete")),
    # tasks; patched to let a finished pod go
    Permission(kind="Pod", verbs=("get", "list", "watch", "create", "patch", "delete")),
    # a new key for a running instance; a web socket is a get, and newer servers ask for create besides
    Permission(kind="Pod", subresource="exec", verbs=("get", "create")),
    # SSH, where the portal is outside the cluster
    Permission(kind="Pod", subresource="portforward", verbs=("get", "create")),
    Permission(kind="Pod", subresource="log", verbs=("get",)),
    # why something does not run, and where there is room
    Permission(kind="Event", verbs=("list", "watch")),
    Permission(kind="Node", verbs=("get", "list", "watch")),
    # the check alone
    Permission(kind="IngressClass", verbs=("list",), optional=True),
    Permission(kind="GatewayClass", verbs=("list",), optional=True),
    Permission(kind="Gateway", verbs=("get",), optional=True),
    Permission(kind="PriorityClass", verbs=("list",), optional=True),
    Permission(kind="NodeMetrics", verbs=("list",), optional=True),
)


def rules() -> list[dict[str, Any]]:
    """The ``rules`` of a ClusterRole that allows exactly `NEEDED`: one for each entry, in its order."""
    return [{"apiGroups": [entry.group], "resources": [entry.resource], "verbs": list(entry.verbs)} for entry in NEEDED]


def grant(entry: Permission, account: str) -> str:
    """The commands that allow ``entry`` to a user (``kubectl auth whoami`` tells its name)."""
    name = f"mlportal-{entry.full_name.replace('/', '-')}"
    return (
        f"kubectl create clusterrole {name} --verb={','.join(entry.verbs)} --resource={entry.full_name} && "
        f"kubectl create clusterrolebinding {name} --clusterrole={name} {_subject(account)}"
    )


def _subject(account: str) -> str:
    """How ``kubectl create clusterrolebinding`` takes the account that the credentials belong to."""
    parts = account.split(":")
    if account.startswith("system:serviceaccount:") and len(parts) == 4:
        return f"--serviceaccount={parts[2]}:{parts[3]}"
    return f"--user={account or 'NAME'}"
