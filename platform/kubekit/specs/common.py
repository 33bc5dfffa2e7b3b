"""Parts that several specifications share: identity, size, mounts, placement."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubekit import names

from .checks import (
    KIND,
    LABEL_KEY,
    LABEL_VALUE,
    NVIDIA,
    RESERVED_PATHS,
    RESERVED_TREES,
    frozen,
    require,
    require_extended_resource,
    require_name,
)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which row an object stands for; becomes its labels and its name.

    ``install`` tells two portals on one cluster apart, ``name`` is what the person typed (any text), ``attempt`` the
    number of a task attempt.
    """

    install: str
    kind: str
    id: str
    generation: int
    name: str
    attempt: int | None = None

    def __post_init__(self) -> None:
        require(LABEL_VALUE.fullmatch(self.install) is not None, "bad_label", "install", "not a label value")
        require(KIND.fullmatch(self.kind) is not None, "bad_label", "kind", "not a lower-case word")
        require(LABEL_VALUE.fullmatch(self.id) is not None, "bad_id", "id", "not a label value")
        require(self.generation >= 0, "bad_generation", "generation", "must not be negative")
        require(bool(self.name.strip()), "empty_name", "name", "must not be empty")
        require(self.attempt is None or self.attempt >= 0, "bad_attempt", "attempt", "must not be negative")


@dataclass(frozen=True, kw_only=True)
class GatewayRef:
    """The Gateway that leads to instances: where it is, and which of its listeners (all of them without a name)."""

    namespace: str
    name: str
    listener: str | None = None

    def __post_init__(self) -> None:
        require_name(self.namespace, "namespace")
        for value, where in ((self.name, "gateway"), (self.listener or "web", "listener")):
            require(names.is_dns_name(value), "bad_name", where, f"{value!r} is not a name")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """A size: limits of one container, and what of them is requested (guaranteed) when less than the limit.

    GPUs are requested whole; ``gpu_resource`` names the model's extended resource. ``shm_bytes`` caps /dev/shm, whose
    pages count as the container's memory (default: half of it).
    """

    cpu_millis: int
    memory_bytes: int
    gpus: int = 0
    gpu_resource: str = NVIDIA
    cpu_request_millis: int | None = None
    memory_request_bytes: int | None = None
    shm_bytes: int | None = None

    def __post_init__(self) -> None:
        require(self.cpu_millis > 0, "bad_cpu", "cpu_millis", "must be more than 0")
        require(self.memory_bytes > 0, "bad_memory", "memory_bytes", "must be more than 0")
        require(self.gpus >= 0, "bad_gpus", "gpus", "must not be negative")
        require_extended_resource(self.gpu_resource, "gpu_resource")
        cpu, memory = self.cpu_request_millis, self.memory_request_bytes
        require(cpu is None or 0 < cpu <= self.cpu_millis, "bad_cpu", "cpu_request_millis", "must be within the limit")
        require(
            memory is None or 0 < memory <= self.memory_bytes,
            "bad_memory",
            "memory_request_bytes",
            "must be within the limit",
        )
        shm = self.shm_bytes
        require(shm is None or 0 < shm <= self.memory_bytes, "bad_shm", "shm_bytes", "must be within the memory")

    @property
    def requested_cpu_millis(self) -> int:
        """What the scheduler and ``requests.cpu`` count."""
        return self.cpu_millis if self.cpu_request_millis is None else self.cpu_request_millis

    @property
    def requested_memory_bytes(self) -> int:
        """What the scheduler and ``requests.memory`` count."""
        return self.memory_bytes if self.memory_request_bytes is None else self.memory_request_bytes

    @property
    def shared_memory_bytes(self) -> int:
        """Size limit of /dev/shm."""
        return max(1, self.memory_bytes // 2) if self.shm_bytes is None else self.shm_bytes


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A claim of the same namespace at an absolute path of the container."""

    claim: str
    path: str
    read_only: bool = False

    def __post_init__(self) -> None:
        require_name(self.claim, "claim")
        path = self.path
        printable = path.isprintable() and ":" not in path and len(path) <= 255
        absolute = path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path
        require(printable and absolute, "bad_path", "path", f"{path!r} is not a plain absolute path")
        reserved = path in RESERVED_PATHS or any(f"{path}/".startswith(f"{tree}/") for tree in RESERVED_TREES)
        require(not reserved, "reserved_path", "path", f"{path} belongs to the system; choose a folder such as /data")


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A taint that the pod accepts. ``value`` empty means any value."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __post_init__(self) -> None:
        require(LABEL_KEY.fullmatch(self.key) is not None, "bad_toleration", "key", "not a taint key")
        require(not self.value or LABEL_VALUE.fullmatch(self.value) is not None, "bad_toleration", "value", "bad value")
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        require(self.effect in effects, "bad_toleration", "effect", f"must be one of {', '.join(effects)}")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and how privileged pods run: decided by the platform from role, pool and cluster, never by user text.

    ``host_users`` False asks for a user namespace (root in the pod is nobody on the node); None leaves the field out
    for clusters or runtimes without them. ``gpu_taints`` are tolerated only by pods that ask for a GPU.
    """

    priority_class: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    gpu_taints: tuple[Toleration, ...] = (Toleration(key=NVIDIA),)
    host_users: bool | None = None
    runtime_class: str | None = None
    image_pull_secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "node_selector", frozen(self.node_selector))
        for key, value in self.node_selector.items():
            require(
                LABEL_KEY.fullmatch(key) is not None, "bad_node_selector", "node_selector", f"{key!r} is no label key"
            )
            good = value == "" or LABEL_VALUE.fullmatch(value) is not None
            require(good, "bad_node_selector", "node_selector", f"{value!r} is no label value")
        if self.priority_class is not None:
            require(names.is_dns_name(self.priority_class), "bad_name", "priority_class", "not a name")
            system = self.priority_class.startswith("system-")
            require(
                not system, "system_priority", "priority_class", "classes of the system itself are never given to pods"
            )
        if self.runtime_class is not None:
            require(names.is_dns_name(self.runtime_class), "bad_name", "runtime_class", "not a name")
        for secret in self.image_pull_secrets:
            require(names.is_dns_name(secret), "bad_name", "image_pull_secrets", f"{secret!r} is not a name")


def check_mounts(mounts: tuple[Mount, ...]) -> None:
    paths = [mount.path for mount in mounts]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    require(not twice, "path_used_twice", "mounts", f"two volumes at {', '.join(twice)}")
    modes: dict[str, bool] = {}
    for mount in mounts:
        same = modes.setdefault(mount.claim, mount.read_only) == mount.read_only
        require(same, "mixed_read_only", "mounts", f"{mount.claim} is mounted both read-only and writable")
