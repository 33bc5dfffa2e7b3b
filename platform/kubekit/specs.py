"""What the portal wants of a cluster, as frozen values: the only input of the builders in `kubekit.build`.

Everything is validated on construction and refused with `SpecError(code, field, message)`, so a builder never meets a
value that could change the meaning of a manifest. Units are in the names: ``_millis`` (thousandths of a CPU),
``_bytes``, ``_s`` (seconds).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType

from . import names
from .errors import SpecError
from .quantities import scale

NVIDIA = "nvidia.com/gpu"
HOME_PATH = "/root"
SECRET_PATH = "/etc/mlportal"
MAX_IMAGE_LENGTH = 512

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_KIND = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}", re.ASCII)
_LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_EXTENDED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_IMAGE = re.compile(r"[a-z0-9]([-a-z0-9._:/]*[a-z0-9])?(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@sha256:[0-9a-f]{64})?", re.ASCII)
_HOST_AND_PORT = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?", re.ASCII)
_ORIGIN = re.compile(r"https?://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?", re.ASCII)

#: Paths that a volume must not cover: the container would not start, or would lose what protects it.
_RESERVED_PATHS = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")
_RESERVED_TREES = ("/dev", "/etc", "/opt/venv", "/opt/python", "/proc", "/sys", "/usr", "/var/run", "/run")
_RESERVED_ENV = ("MLPORTAL_",)
#: Prefixes whose resources a Kubernetes server never treats as extended resources.
_NATIVE_DOMAINS = ("kubernetes.io/", "requests.")

ACCESS_MODES = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany")
PULL_POLICIES = ("IfNotPresent", "Always", "Never")
POD_SECURITY_LEVELS = ("baseline", "restricted")


def _require(condition: bool, code: str, where: str, message: str) -> None:
    if not condition:
        raise SpecError(code, where, message)


def _frozen(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(mapping))


def require_name(value: str, where: str) -> None:
    """Refuse anything but a DNS label of at most 63 characters."""
    _require(names.is_dns_label(value), "bad_name", where, f"{value!r} is not a lower-case DNS label of 1-63 characters")


def require_extended_resource(name: str, where: str) -> None:
    """Refuse a resource name that the scheduler would not count (``gpu``, ``requests.nvidia.com/gpu``)."""
    good = _EXTENDED.fullmatch(name) is not None and not name.startswith(_NATIVE_DOMAINS) and ".kubernetes.io/" not in name
    _require(good, "bad_gpu_resource", where, f"{name!r} is not an extended resource such as {NVIDIA}")


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
        _require(_LABEL_VALUE.fullmatch(self.install) is not None, "bad_label", "install", "not a label value")
        _require(_KIND.fullmatch(self.kind) is not None, "bad_label", "kind", "not a lower-case word")
        _require(_LABEL_VALUE.fullmatch(self.id) is not None, "bad_id", "id", "not a label value")
        _require(self.generation >= 0, "bad_generation", "generation", "must not be negative")
        _require(bool(self.name.strip()), "empty_name", "name", "must not be empty")
        _require(self.attempt is None or self.attempt >= 0, "bad_attempt", "attempt", "must not be negative")


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
        _require(self.cpu_millis > 0, "bad_cpu", "cpu_millis", "must be more than 0")
        _require(self.memory_bytes > 0, "bad_memory", "memory_bytes", "must be more than 0")
        _require(self.gpus >= 0, "bad_gpus", "gpus", "must not be negative")
        require_extended_resource(self.gpu_resource, "gpu_resource")
        cpu, memory = self.cpu_request_millis, self.memory_request_bytes
        _require(cpu is None or 0 < cpu <= self.cpu_millis, "bad_cpu", "cpu_request_millis", "must be within the limit")
        _require(
            memory is None or 0 < memory <= self.memory_bytes,
            "bad_memory", "memory_request_bytes", "must be within the limit",
        )
        shm = self.shm_bytes
        _require(shm is None or 0 < shm <= self.memory_bytes, "bad_shm", "shm_bytes", "must be within the memory")

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
        _require(printable and absolute, "bad_path", "path", f"{path!r} is not a plain absolute path")
        reserved = path in _RESERVED_PATHS or any(path.startswith(tree + "/") for tree in _RESERVED_TREES)
        _require(not reserved, "reserved_path", "path", f"{path} belongs to the system; choose a folder such as /data")


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """A taint that the pod accepts. ``value`` empty means any value."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __post_init__(self) -> None:
        _require(_LABEL_KEY.fullmatch(self.key) is not None, "bad_toleration", "key", "not a taint key")
        _require(not self.value or _LABEL_VALUE.fullmatch(self.value) is not None, "bad_toleration", "value", "bad value")
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        _require(self.effect in effects, "bad_toleration", "effect", f"must be one of {', '.join(effects)}")


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
        object.__setattr__(self, "node_selector", _frozen(self.node_selector))
        for key, value in self.node_selector.items():
            _require(_LABEL_KEY.fullmatch(key) is not None, "bad_node_selector", "node_selector", f"{key!r} is no label key")
            good = value == "" or _LABEL_VALUE.fullmatch(value) is not None
            _require(good, "bad_node_selector", "node_selector", f"{value!r} is no label value")
        if self.priority_class is not None:
            _require(names.is_dns_name(self.priority_class), "bad_name", "priority_class", "not a name")
            system = self.priority_class.startswith("system-")
            _require(not system, "system_priority", "priority_class", "classes of the system itself are never given to pods")
        if self.runtime_class is not None:
            _require(names.is_dns_name(self.runtime_class), "bad_name", "runtime_class", "not a name")
        for secret in self.image_pull_secrets:
            _require(names.is_dns_name(secret), "bad_name", "image_pull_secrets", f"{secret!r} is not a name")


def _check_image(image: str, pull_policy: str) -> None:
    good = len(image) <= MAX_IMAGE_LENGTH and _IMAGE.fullmatch(image) is not None
    _require(good, "bad_image", "image", f"{image[:80]!r} is not an image reference such as team/name:tag")
    _require(pull_policy in PULL_POLICIES, "bad_pull_policy", "image_pull_policy", f"must be one of {', '.join(PULL_POLICIES)}")


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        _require(_ENV_NAME.fullmatch(name) is not None, "bad_env", "env", f"{name!r} is not a variable's name")
        _require(not name.startswith(_RESERVED_ENV), "reserved_env", "env", f"{name}: MLPORTAL_ belongs to the portal")
        _require("\0" not in value, "bad_env", "env", f"{name} contains a NUL character")


def _check_mounts(mounts: tuple[Mount, ...]) -> None:
    paths = [mount.path for mount in mounts]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    _require(not twice, "path_used_twice", "mounts", f"two volumes at {', '.join(twice)}")
    modes: dict[str, bool] = {}
    for mount in mounts:
        same = modes.setdefault(mount.claim, mount.read_only) == mount.read_only
        _require(same, "mixed_read_only", "mounts", f"{mount.claim} is mounted both read-only and writable")


@dataclass(frozen=True, kw_only=True)
class InstanceSpec:
    """A dev instance: one StatefulSet of 0 or 1 pods with a Secret, a Service and an Ingress.

    ``mounts`` holds the home (a claim at /root) and chosen volumes. ``public_host`` is what a browser types
    (``host[:port]``) and ``host`` the same without the port, for the Ingress. The key itself is not here: it goes to
    `kubekit.build.instance.secret`, so that a spec can be logged.
    """

    identity: Identity
    namespace: str
    image: str
    resources: Resources
    host: str
    public_host: str
    portal_origin: str
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 8888
    ready_path: str = "/portal/ready"
    ingress_class: str | None = None
    tls_secret: str | None = None
    placement: Placement = field(default_factory=Placement)
    image_pull_policy: str = "IfNotPresent"
    grace_s: int = 30

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", _frozen(self.env))
        require_name(self.namespace, "namespace")
        _check_image(self.image, self.image_pull_policy)
        _check_env(self.env)
        _check_mounts(self.mounts)
        _require(names.is_dns_name(self.host), "bad_host", "host", f"{self.host!r} is not a host name")
        _require(_HOST_AND_PORT.fullmatch(self.public_host) is not None, "bad_host", "public_host", "not host[:port]")
        _require(_ORIGIN.fullmatch(self.portal_origin) is not None, "bad_origin", "portal_origin", "not scheme://host[:port]")
        _require(1 <= self.port <= 65535, "bad_port", "port", "must be 1-65535")
        _require(re.fullmatch(r"/[-a-zA-Z0-9._/]*", self.ready_path) is not None, "bad_path", "ready_path", "not a path")
        _require(0 <= self.grace_s <= 3600, "bad_grace", "grace_s", "must be 0-3600 seconds")
        for value, where in ((self.ingress_class, "ingress_class"), (self.tls_secret, "tls_secret")):
            _require(value is None or names.is_dns_name(value), "bad_name", where, f"{value!r} is not a name")

    @property
    def object_name(self) -> str:
        """Name of the StatefulSet, Service, Ingress and Secret."""
        return names.instance_name(self.identity.name, self.identity.id)

    @property
    def pod_name(self) -> str:
        """Name of the one pod, when it runs."""
        return f"{self.object_name}-0"


@dataclass(frozen=True, kw_only=True)
class TaskPodSpec:
    """One attempt of a task: a bare pod that is created once and never restarted.

    ``identity.kind`` is ``attempt``, ``identity.id`` the attempt row and ``identity.attempt`` its number (from 1).
    ``deadline_s`` is the cluster's own backstop, counted from the pod's start; ``scheduled_at`` the instant the run
    stands for, ISO 8601 in UTC.
    """

    identity: Identity
    namespace: str
    flow: str
    node: str
    run_id: str
    image: str
    resources: Resources
    scheduled_at: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    deadline_s: int | None = None
    grace_s: int = 30
    working_dir: str | None = None
    placement: Placement = field(default_factory=Placement)
    image_pull_policy: str = "IfNotPresent"

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", _frozen(self.env))
        require_name(self.namespace, "namespace")
        _require(self.identity.attempt is not None, "attempt_missing", "identity", "an attempt's number is needed")
        _check_image(self.image, self.image_pull_policy)
        _check_env(self.env)
        _check_mounts(self.mounts)
        _require(bool(self.scheduled_at), "scheduled_at_missing", "scheduled_at", "must not be empty")
        _require(self.deadline_s is None or self.deadline_s >= 1, "bad_deadline", "deadline_s", "must be at least 1 second")
        _require(0 <= self.grace_s <= 3600, "bad_grace", "grace_s", "must be 0-3600 seconds")
        for part in (*self.command, *self.args):
            _require("\0" not in part, "bad_command", "command", "contains a NUL character")
        directory = self.working_dir
        _require(
            directory is None or (directory.startswith("/") and posixpath.normpath(directory) == directory),
            "bad_path", "working_dir", f"{directory!r} is not a plain absolute path",
        )

    @property
    def object_name(self) -> str:
        """Name of the pod."""
        number = self.identity.attempt or 0
        return names.attempt_pod_name(self.flow, self.run_id, self.node, number, self.identity.id)


@dataclass(frozen=True, kw_only=True)
class ClaimSpec:
    """A volume: a PersistentVolumeClaim of its own, which outlives every pod that mounts it."""

    identity: Identity
    namespace: str
    storage_bytes: int
    access_mode: str = "ReadWriteOnce"
    storage_class: str | None = None

    def __post_init__(self) -> None:
        require_name(self.namespace, "namespace")
        _require(self.storage_bytes > 0, "bad_storage", "storage_bytes", "must be more than 0")
        _require(self.access_mode in ACCESS_MODES, "bad_access_mode", "access_mode", f"must be one of {', '.join(ACCESS_MODES)}")
        storage_class = self.storage_class
        _require(storage_class is None or names.is_dns_name(storage_class), "bad_name", "storage_class", "not a name")

    @property
    def object_name(self) -> str:
        """Name of the claim."""
        return names.claim_name(self.identity.name, self.identity.id)


@dataclass(frozen=True, kw_only=True)
class QueueSpec:
    """A queue: a namespace with its ResourceQuota, LimitRange and network policies.

    ``cpu_millis`` and ``memory_bytes`` bound what pods *request*; what they may *burst* to (limits) is that times the
    oversell ratio (>= 1). ``gpus`` maps an extended resource (``nvidia.com/gpu``) to a count. ``extra_quota`` is
    for further counts; a key the server would store without enforcing is refused.
    """

    identity: Identity
    cpu_millis: int
    memory_bytes: int
    storage_bytes: int
    claims: int
    pods: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    oversell_cpu: Decimal | int | float = 1
    oversell_memory: Decimal | int | float = 1
    extra_quota: Mapping[str, int] = field(default_factory=dict)
    default_cpu_millis: int = 500
    default_memory_bytes: int = 1 << 30
    pod_security: str = "baseline"
    ingress_namespaces: tuple[str, ...] = ()
    dns_namespace: str = "kube-system"
    outside: bool = True
    blocked_ranges: tuple[str, ...] = (
        "10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15",
    )
    blocked_ranges_v6: tuple[str, ...] = ("fc00::/7", "fe80::/10")
    allowed_ranges: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for where in ("gpus", "extra_quota"):
            object.__setattr__(self, where, MappingProxyType(dict(getattr(self, where))))
        for where in ("cpu_millis", "memory_bytes", "storage_bytes", "claims", "pods"):
            _require(getattr(self, where) >= 0, "negative_quota", where, "must not be negative")
        for resource, count in self.gpus.items():
            require_extended_resource(resource, "gpus")
            _require(count >= 0, "negative_quota", "gpus", f"{resource} must not be negative")
        for where in ("oversell_cpu", "oversell_memory"):
            _require(getattr(self, where) >= 1, "bad_oversell", where, "must be 1 or more")
        for where in ("default_cpu_millis", "default_memory_bytes"):
            _require(getattr(self, where) > 0, "bad_default", where, "must be more than 0")
        _require(
            self.pod_security in POD_SECURITY_LEVELS,
            "bad_pod_security", "pod_security", f"must be one of {', '.join(POD_SECURITY_LEVELS)}",
        )
        for namespace in (*self.ingress_namespaces, self.dns_namespace):
            require_name(namespace, "ingress_namespaces")

    @property
    def namespace(self) -> str:
        """Name of the namespace; never reused, because the queue's id is in it."""
        return names.namespace_name(self.identity.name, self.identity.id)

    @property
    def limit_cpu_millis(self) -> int:
        """What all limits together may reach."""
        return scale(self.cpu_millis, self.oversell_cpu)

    @property
    def limit_memory_bytes(self) -> int:
        """What all limits together may reach."""
        return scale(self.memory_bytes, self.oversell_memory)


def check_secret_key(key: str) -> None:
    """Refuse what a Secret would not take as a key."""
    _require(_SECRET_KEY.fullmatch(key) is not None, "bad_secret_key", "secret", f"{key!r} is not a key of a Secret")
