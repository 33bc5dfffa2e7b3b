"""Whether a cluster's nodes have room, answered from what was last seen of them; the scheduler decides in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from django.db.models import BigIntegerField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce

from apps.clusters.models import Cluster, Node

GPU_TAINT = "nvidia.com/gpu"
CPU, MEMORY, PODS = "cpu_millis", "memory_bytes", "pods"
_COLUMNS = ("allocatable", "requested")


class Need(Protocol):
    """What a pod asks of a node: thousandths of a CPU, bytes, GPUs by resource (the ledger's ``Amount`` fits)."""

    @property
    def cpu_millis(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def gpus(self) -> Mapping[str, int]: ...


class Verdict(StrEnum):
    """``LATER``: it fits a node of this kind once others have ended. ``UNKNOWN``: no node was seen yet."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class RoomAnswer:
    """The verdict; unless it is ``NOW``, the first ``resource`` that is short on the node that comes closest.

    ``asked``, ``available`` (free for ``LATER``, all of the node's for ``NEVER``) and ``missing`` in the resource's
    own unit. ``node`` is empty unless one was looked at.
    """

    verdict: Verdict
    resource: str = ""
    asked: int = 0
    available: int = 0
    node: str = ""

    @property
    def missing(self) -> int:
        """How much less would fit."""
        return max(0, self.asked - self.available)


def will_fit(cluster: Cluster, need: Need) -> RoomAnswer:
    """`judge` over the cluster's stored nodes: one statement where there is room, and one more to say what is short.

    Thousands of nodes are not read to find that one of them will do.
    """
    nodes = Node.objects.as_system().filter(cluster=cluster)
    untainted = nodes.filter(ready=True, schedulable=True, taints=[])
    for name, count in _asked(need).items():
        has, taken = (Coalesce(Cast(KT(f"{column}__{name}"), BigIntegerField()), 0) for column in _COLUMNS)
        untainted = untainted.annotate(left=has - taken).filter(left__gte=count)
    if untainted.exists():
        return RoomAnswer(verdict=Verdict.NOW)
    return judge(nodes, need)


def judge(nodes: Iterable[Node], need: Need) -> RoomAnswer:
    """Pure: the best answer that any usable node gives.

    A node counts when it is ready, schedulable and has no taint that keeps the pod away (a pod with GPUs tolerates
    the GPU taint, see ``kubekit.specs.Placement``).
    """
    asked = _asked(need)
    usable = [node for node in nodes if _is_usable(node, gpus=any(need.gpus.values()))]
    if not usable:
        return RoomAnswer(verdict=Verdict.UNKNOWN)
    big_enough = [node for node in usable if not _short(asked, node.allocatable)]
    if not big_enough:
        return _closest(Verdict.NEVER, asked, [(node, node.allocatable) for node in usable])
    free = [(node, {name: node.free(name) for name in asked}) for node in big_enough]
    if any(not _short(asked, left) for _node, left in free):
        return RoomAnswer(verdict=Verdict.NOW)
    return _closest(Verdict.LATER, asked, free)


def _asked(need: Need) -> dict[str, int]:
    asked = {CPU: need.cpu_millis, MEMORY: need.memory_bytes, PODS: 1, **need.gpus}
    return {name: count for name, count in asked.items() if count}


def _short(asked: Mapping[str, int], left: Mapping[str, Any]) -> dict[str, int]:
    return {name: count - int(left.get(name, 0)) for name, count in asked.items() if count > int(left.get(name, 0))}


def _closest(verdict: Verdict, asked: Mapping[str, int], left: Sequence[tuple[Node, Mapping[str, Any]]]) -> RoomAnswer:
    """The node that lacks the least, measured against what is asked."""

    def lack(entry: tuple[Node, Mapping[str, Any]]) -> float:
        return sum(missing / asked[name] for name, missing in _short(asked, entry[1]).items())

    node, has = min(left, key=lack)
    resource = next(iter(_short(asked, has)))
    return RoomAnswer(
        verdict=verdict,
        resource=resource,
        asked=asked[resource],
        available=int(has.get(resource, 0)),
        node=node.name,
    )


def _is_usable(node: Node, *, gpus: bool) -> bool:
    if not node.ready or not node.schedulable:
        return False
    return all(
        taint.get("effect") == "PreferNoSchedule" or (gpus and taint.get("key") == GPU_TAINT) for taint in node.taints
    )
