"""What the portal wants of a cluster, as frozen values: the only input of the builders in `kubekit.build`.

Everything is validated on construction and refused with `SpecError(code, field, message)`, so a builder never meets a
value that could change the meaning of a manifest. Units are in the names: ``_millis`` (thousandths of a CPU),
``_bytes``, ``_s`` (seconds).
"""

from kubekit.errors import SpecError

from .checks import (
    ACCESS_MODES,
    HOME_PATH,
    KEY_PATH,
    NVIDIA,
    POD_SECURITY_LEVELS,
    PULL_POLICIES,
    check_env,
    check_secret_key,
)
from .common import GatewayRef, Identity, Mount, Placement, Resources, Toleration
from .tenancy import ClaimSpec, QueueSpec
from .workload import InstanceSpec, TaskPodSpec

__all__ = [
    "ACCESS_MODES",
    "HOME_PATH",
    "KEY_PATH",
    "NVIDIA",
    "POD_SECURITY_LEVELS",
    "PULL_POLICIES",
    "ClaimSpec",
    "GatewayRef",
    "Identity",
    "InstanceSpec",
    "Mount",
    "Placement",
    "QueueSpec",
    "Resources",
    "SpecError",
    "TaskPodSpec",
    "Toleration",
    "check_env",
    "check_secret_key",
]
