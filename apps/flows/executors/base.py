"""What an executor is: it reads its node's fields and says which pod carries them out. No network here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from apps.flows.reading import Reader
from apps.tenants.ledger import Amount
from kubekit.specs import TaskPodSpec


class NodeConfig(Protocol):
    """An executor's own part of a node, as a frozen value."""

    def as_json(self) -> dict[str, Any]:
        """The fields as they stand in the document."""
        ...


@dataclass(frozen=True, kw_only=True)
class MountedVolume:
    """A volume that a node mounts: the claim's name in the queue's namespace."""

    claim: str
    path: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What the names of a node meant when an attempt starts: image reference, size in numbers, claims."""

    image: str
    cpu_millis: int
    memory_bytes: int
    gpus: int
    gpu_resource: str
    volumes: Sequence[MountedVolume] = ()

    @property
    def amount(self) -> Amount:
        """What an attempt takes of the queue."""
        return Amount(
            cpu_millis=self.cpu_millis,
            memory_bytes=self.memory_bytes,
            gpus={self.gpu_resource: self.gpus} if self.gpus else {},
        )


@dataclass(frozen=True, kw_only=True)
class PodRequest:
    """All that a pod's specification depends on besides the node itself."""

    install: str
    namespace: str
    flow: str
    node: str
    run_id: UUID
    attempt_id: UUID
    number: int
    version: int
    scheduled_at: str
    parameters: Mapping[str, str]
    resolved: Resolved
    guaranteed_cpu_millis: int
    guaranteed_memory_bytes: int
    timeout_s: int
    start_timeout_s: int
    grace_s: int
    host_users: bool | None


class Executor(Protocol):
    """One kind of node. ``fields`` are the document's fields that are this kind's own."""

    name: str
    fields: frozenset[str]

    def read(self, reader: Reader) -> NodeConfig:
        """Read the own fields, noting faults in the reader."""
        ...

    def pod(self, config: NodeConfig, request: PodRequest) -> TaskPodSpec:
        """The pod of one attempt. Raises ``kubekit.errors.SpecError``."""
        ...
