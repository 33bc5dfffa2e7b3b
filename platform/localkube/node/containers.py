"""From a container of a manifest to what is run: command, environment, mounts. Pure but for what it is handed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from localkube.node.images import PATH, Image
from localkube.node.sandbox import Bind, Sandbox, Tmpfs
from localkube.node.volumes import Source, field_value
from localkube.quantity import parse
from localkube.status import Object

DEFAULT_UID: Final = 1000
_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()]+)\)")

_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")

Lookup = Callable[[str, str], Mapping[str, bytes] | None]
"""(kind, name) -> content of a Secret ("secret") or ConfigMap ("configMap") of the pod's namespace."""


def trust(exists: Callable[[str], bool] = os.path.exists) -> dict[str, str]:
    """Variables that make programs trust whom this machine trusts: Python packages bring lists of their own."""
    found = next((path for path in _BUNDLES if exists(path)), None)
    return {"SSL_CERT_FILE": found, "REQUESTS_CA_BUNDLE": found} if found else {}


class ConfigError(RuntimeError):
    """The container cannot be set up as written; waiting reason CreateContainerConfigError."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)` substitution: `$$` is a dollar, an unknown name stays as it is."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def environment(pod: Object, container: Object, lookup: Lookup) -> dict[str, str]:
    """The container's variables, in Kubernetes' order of precedence. Raises ConfigError."""
    env = {"PATH": PATH, "HOME": "/root", "HOSTNAME": pod["metadata"]["name"], "LANG": "C.UTF-8"}
    env |= trust()
    for source in container.get("envFrom", []):
        kind = "secret" if "secretRef" in source else "configMap"
        reference = source[f"{kind}Ref"]
        for key, data in _content(lookup, kind, reference).items():
            env[source.get("prefix", "") + key] = data.decode(errors="replace")
    for entry in container.get("env", []):
        value = _value(pod, container, entry, env, lookup)
        if value is not None:
            env[entry["name"]] = value
    return env


def _content(lookup: Lookup, kind: str, reference: Object) -> Mapping[str, bytes]:
    data = lookup(kind, reference["name"])
    if data is None:
        if reference.get("optional"):
            return {}
        raise ConfigError(f'{kind.lower()} "{reference["name"]}" not found')
    return data


def _value(pod: Object, container: Object, entry: Object, env: Mapping[str, str], lookup: Lookup) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value") or "", env)
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        section, _, name = source["resourceFieldRef"]["resource"].partition(".")
        amount = parse((container.get("resources", {}).get(section) or {}).get(name, "0"))
        divisor = parse(source["resourceFieldRef"].get("divisor") or "1")
        return str(-(-amount.nano // (divisor.nano or 10**9)))
    kind = "secret" if "secretKeyRef" in source else "configMap"
    reference = source[f"{kind}KeyRef"]
    data = _content(lookup, kind, reference)
    if reference["key"] in data:
        return data[reference["key"]].decode(errors="replace")
    if reference.get("optional"):
        return None
    noun = "Secret" if kind == "secret" else "ConfigMap"
    where = f"{pod['metadata']['namespace']}/{reference['name']}"
    raise ConfigError(f"couldn't find key {reference['key']} in {noun} {where}")


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
            continue
        path = f"{source.path}/{entry['subPath']}" if entry.get("subPath") else source.path
        binds.append(Bind(path, entry["mountPath"], source.read_only or bool(entry.get("readOnly"))))
    return binds, memory


def user(pod: Object, container: Object) -> tuple[int, int]:
    """(uid, gid) inside; an image of this repository is made for uid 1000."""
    of_pod, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    uid = own.get("runAsUser", of_pod.get("runAsUser", DEFAULT_UID))
    return int(uid), int(own.get("runAsGroup", of_pod.get("runAsGroup", uid)))


def sandbox(
    pod: Object,
    container: Object,
    *,
    image: Image,
    sources: Mapping[str, Source],
    own_files: list[Bind],
    termination_log: Bind,
    lookup: Lookup,
) -> Sandbox:
    """Everything that bubblewrap needs for one container. Raises ConfigError."""
    env = environment(pod, container, lookup)
    binds, memory = mounts(container, sources)
    if not any(target == "/root" for target in (*[b.target for b in binds], *[t.target for t in memory])):
        memory.append(Tmpfs("/root"))
    uid, gid = user(pod, container)
    return Sandbox(
        argv=command(container, image, env),
        env=env,
        binds=(*image.binds, *own_files, termination_log, *binds),
        tmpfs=tuple(memory),
        uid=uid,
        gid=gid,
        workdir=container.get("workingDir") or "/root",
        read_only_root=bool((container.get("securityContext") or {}).get("readOnlyRootFilesystem")),
    )
