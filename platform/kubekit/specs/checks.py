"""What a name, path, image or variable must look like; shared by the specifications."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from kubekit import names
from kubekit.errors import SpecError

NVIDIA = "nvidia.com/gpu"
HOME_PATH = "/root"
KEY_PATH = "/etc/mlportal"
MAX_IMAGE_LENGTH = 512

LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
KIND = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}", re.ASCII)
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
EXTENDED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
IMAGE = re.compile(
    rf"(?:{_PART}(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
HOST_AND_PORT = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?", re.ASCII)
ORIGIN = re.compile(r"https?://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?", re.ASCII)

#: Paths that a volume must not cover: the container would not start, or would lose what protects it.
RESERVED_PATHS = (
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/opt",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var",
)
RESERVED_TREES = (
    "/dev",
    "/etc",
    "/opt/mlportal",
    "/opt/venv",
    "/opt/python",
    "/proc",
    "/sys",
    "/usr",
    "/var/run",
    "/run",
)
RESERVED_ENV = ("MLPORTAL_",)
#: Prefixes whose resources a Kubernetes server never treats as extended resources.
NATIVE_DOMAINS = ("kubernetes.io/", "requests.", "limits.")

ACCESS_MODES = ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany")
PULL_POLICIES = ("IfNotPresent", "Always", "Never")
POD_SECURITY_LEVELS = ("baseline", "restricted")


def require(condition: bool, code: str, where: str, message: str) -> None:
    if not condition:
        raise SpecError(code, where, message)


def frozen(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(mapping))


def require_name(value: str, where: str) -> None:
    """Refuse anything but a DNS label of at most 63 characters."""
    require(names.is_dns_label(value), "bad_name", where, f"{value!r} is not a lower-case DNS label of 1-63 characters")


def require_extended_resource(name: str, where: str) -> None:
    """Refuse a resource name that the scheduler would not count (``gpu``, ``requests.nvidia.com/gpu``)."""
    good = (
        EXTENDED.fullmatch(name) is not None and not name.startswith(NATIVE_DOMAINS) and ".kubernetes.io/" not in name
    )
    require(good, "bad_gpu_resource", where, f"{name!r} is not an extended resource such as {NVIDIA}")


def check_image(image: str, pull_policy: str) -> None:
    good = len(image) <= MAX_IMAGE_LENGTH and IMAGE.fullmatch(image) is not None
    require(good, "bad_image", "image", f"{image[:80]!r} is not an image reference such as team/name:tag")
    require(
        pull_policy in PULL_POLICIES,
        "bad_pull_policy",
        "image_pull_policy",
        f"must be one of {', '.join(PULL_POLICIES)}",
    )


def check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        require(ENV_NAME.fullmatch(name) is not None, "bad_env", "env", f"{name!r} is not a variable's name")
        require(not name.startswith(RESERVED_ENV), "reserved_env", "env", f"{name}: MLPORTAL_ belongs to the portal")
        require("\0" not in value, "bad_env", "env", f"{name} contains a NUL character")


def check_secret_key(key: str) -> None:
    """Refuse what a Secret would not take as a key."""
    require(SECRET_KEY.fullmatch(key) is not None, "bad_secret_key", "secret", f"{key!r} is not a key of a Secret")
