"""A node that runs a command in a container image of the catalogue."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from apps.flows.executors.base import NodeConfig, PodRequest
from apps.flows.reading import Faults, Reader
from kubekit.errors import SpecError
from kubekit.specs import NVIDIA, Identity, Mount, Placement, Resources, TaskPodSpec
from kubekit.specs.checks import check_env

#: How much longer than the portal's own deadline the cluster's backstop waits.
BACKSTOP_SLACK_S = 120
MAX_VOLUMES = 20


@dataclass(frozen=True, kw_only=True)
class VolumeDoc:
    """A volume by name or id. Without a path a home goes to /root and data to /mnt/<name>."""

    volume: str
    path: str = ""
    read_only: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"volume": self.volume, "path": self.path, "read_only": self.read_only}


@dataclass(frozen=True, kw_only=True)
class ContainerConfig:
    """Image and size by name or id, what to run, and where."""

    image: str
    size: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    volumes: tuple[VolumeDoc, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "image": self.image,
            "size": self.size,
            "command": list(self.command),
            "args": list(self.args),
            "env": dict(self.env),
            "working_dir": self.working_dir,
            "volumes": [entry.as_json() for entry in self.volumes],
        }


class ContainerExecutor:
    """See the module's docstring."""

    name = "container"
    fields = frozenset({"image", "size", "command", "args", "env", "working_dir", "volumes"})

    def read(self, reader: Reader) -> ContainerConfig:
        """Read the node's own fields."""
        env = reader.mapping("env")
        try:
            check_env(env)
        except SpecError as error:
            reader.fault("env", error.message, code=error.code)
        directory = str(reader.data.get("working_dir") or "")
        if directory and not is_plain_path(directory):
            reader.fault("working_dir", _("An absolute path such as /root/project is expected."))
        volumes = reader.each("volumes", lambda data, place: _volume(data, place, reader.faults), most=MAX_VOLUMES)
        paths = [entry.path for entry in volumes if entry.path]
        for path in sorted({path for path in paths if paths.count(path) > 1}):
            reader.fault("volumes", _("Two volumes stand at %(path)s.") % {"path": path})
        return ContainerConfig(
            image=reader.text("image", limit=100),
            size=reader.text("size", limit=100),
            command=reader.texts("command"),
            args=reader.texts("args"),
            env=env,
            working_dir=directory,
            volumes=volumes,
        )

    def pod(self, config: NodeConfig, request: PodRequest) -> TaskPodSpec:
        """The pod of one attempt."""
        assert isinstance(config, ContainerConfig)
        resolved = request.resolved
        return TaskPodSpec(
            identity=Identity(
                install=request.install,
                kind="attempt",
                id=str(request.attempt_id),
                generation=request.version,
                name=f"{request.flow} {request.node}",
                attempt=request.number,
            ),
            namespace=request.namespace,
            flow=request.flow,
            node=request.node,
            run_id=str(request.run_id),
            image=resolved.image,
            resources=Resources(
                cpu_millis=resolved.cpu_millis,
                memory_bytes=resolved.memory_bytes,
                gpus=resolved.gpus,
                gpu_resource=resolved.gpu_resource if resolved.gpus else NVIDIA,
                cpu_request_millis=request.guaranteed_cpu_millis,
                memory_request_bytes=request.guaranteed_memory_bytes,
            ),
            scheduled_at=request.scheduled_at,
            command=config.command,
            args=config.args,
            env={**config.env, **{f"PARAM_{name}": value for name, value in request.parameters.items()}},
            mounts=tuple(
                Mount(claim=entry.claim, path=entry.path, read_only=entry.read_only) for entry in resolved.volumes
            ),
            deadline_s=request.timeout_s + request.start_timeout_s + BACKSTOP_SLACK_S,
            grace_s=request.grace_s,
            working_dir=config.working_dir or None,
            placement=Placement(host_users=request.host_users),
        )


CONTAINER = ContainerExecutor()


def is_plain_path(path: str) -> bool:
    """An absolute path without ``.``, ``..``, doubled slashes or a slash at its end."""
    return path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path


def _volume(data: Any, place: str, faults: Faults) -> VolumeDoc:
    reader = Reader(data, place, faults, known=("volume", "path", "read_only"))
    volume, path = reader.text("volume", limit=100), str(reader.data.get("path") or "")
    if path:
        try:
            Mount(claim="claim", path=path)
        except SpecError as error:
            reader.fault("path", error.message, code=error.code)
    return VolumeDoc(volume=volume, path=path, read_only=reader.flag("read_only", default=False))
