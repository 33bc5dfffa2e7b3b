"""From a container of a manifest to what is run: command, environment, mounts. Pure but for what it is handed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from localkube.node.images import PATH, Image
from localkube.node.sandbox import Bind, Sandbox, Tmpfs
from localkube.node.volumes import Source
from localkube.status import Object

DEFAULT_UID: Final = 1000
FIELD_PATHS: Final = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP")
"""What a variable's `fieldRef` may name."""

_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()]+)\)")
_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def trust(exists: Callable[[str], bool] = os.path.exists) -> dict[str, str]:
    """Variables that make programs trust whom this machine trusts: Python packages bring lists of their own."""
    found = next((path for path in _BUNDLES if exists(path)), None)
    return {"SSL_CERT_FILE": found, "REQUESTS_CA_BUNDLE": found} if found else {}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)` substitution: `$$` is a dollar, an unknown name stays as it is."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def environment(pod: Object, container: Object) -> dict[str, str]:
    """The container's variables: the sandbox's own, then those of the manifest, which may refer to earlier ones."""
    env = {"PATH": PATH, "HOME": "/root", "HOSTNAME": pod["metadata"]["name"], "LANG": "C.UTF-8"} | trust()
    for entry in container.get("env", []):
        if "valueFrom" in entry:
            section, _, name = entry["valueFrom"]["fieldRef"]["fieldPath"].partition(".")
            env[entry["name"]] = pod.get(section, {}).get(name, "")
        else:
            env[entry["name"]] = expand(entry.get("value") or "", env)
    return env


def command(container: Object, image: Image, env: Mapping[str, str]) -> tuple[str, ...]:
    """`command` and `args` of the manifest over the image's own, with references replaced."""
    words = [*container.get("command", []), *container.get("args", [])]
    return tuple(expand(word, env) for word in words) if words else image.command


def mounts(container: Object, sources: Mapping[str, Source]) -> tuple[list[Bind], list[Tmpfs]]:
    """The container's volume mounts as (binds, memory folders)."""
    binds: list[Bind] = []
    memory: list[Tmpfs] = []
    for entry in container.get("volumeMounts", []):
        source = sources[entry["name"]]
        if source.kind == "tmpfs":
            memory.append(Tmpfs(entry["mountPath"], source.size))
        else:
            binds.append(Bind(source.path, entry["mountPath"], source.read_only or bool(entry.get("readOnly"))))
    return binds, memory


def user(pod: Object, container: Object) -> tuple[int, int]:
    """(uid, gid) inside; an image of this repository is made for uid 1000."""
    of_pod, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    uid = own.get("runAsUser", of_pod.get("runAsUser", DEFAULT_UID))
    return int(uid), int(own.get("runAsGroup", of_pod.get("runAsGroup", uid)))


def sandbox(
    pod: Object, container: Object, *, image: Image, sources: Mapping[str, Source], own_binds: list[Bind]
) -> Sandbox:
    """Everything that bubblewrap needs for one container."""
    env = environment(pod, container)
    binds, memory = mounts(container, sources)
    if "/root" not in [bind.target for bind in binds] + [folder.target for folder in memory]:
        memory.append(Tmpfs("/root"))
    uid, gid = user(pod, container)
    return Sandbox(
        argv=command(container, image, env),
        env=env,
        binds=(*image.binds, *own_binds, *binds),
        tmpfs=tuple(memory),
        links=image.links,
        uid=uid,
        gid=gid,
        workdir=container.get("workingDir") or "/root",
    )
