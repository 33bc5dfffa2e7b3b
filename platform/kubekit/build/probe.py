"""What the check of a cluster puts up to try it out: a namespace of its own with claims, pods and one policy.

Everything goes with the namespace, which carries the portal's labels with the kind ``probe``, so that whoever finds one
left behind knows what it is. Pods end by themselves after `POD_DEADLINE_S`, also when nobody comes back for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubekit import names
from kubekit.build import pod
from kubekit.quantities import format_bytes
from kubekit.specs import Identity, Mount, Placement, Resources
from kubekit.specs.checks import check_image, require, require_name

Obj = dict[str, Any]

KIND = "probe"
POD_DEADLINE_S = 300
CLAIM_BYTES = 1 << 30
#: The two that talk to each other; the policy selects the first.
GUARDED, FREE = "guarded", "free"
MAPPED, MOUNTING = "mapped", "mounting"
PORT = 8080
_SIZE = Resources(cpu_millis=100, memory_bytes=64 << 20, cpu_request_millis=10)
_ROLE = f"{names.LABEL_PREFIX}/probe"

#: Listens, says its own address to the other, learns the other's from whoever says one, and knocks for ever. Each line
#: is one knock: ``open`` or ``shut``. An address comes as text, because a network may hide who calls.
TALK = """
import os, socket, threading, time
me, peers = os.environ["ADDRESS"], [os.environ["PEER"]] if os.environ["PEER"] else []
family = socket.AF_INET6 if ":" in me else socket.AF_INET
door = socket.create_server(("", int(os.environ["PORT"])), family=family)
def listen():
    while True:
        caller, _ = door.accept()
        with caller:
            caller.settimeout(2)
            try:
                said = caller.recv(100).decode()
            except OSError:
                continue
            if said and said not in peers:
                peers.append(said)
threading.Thread(target=listen, daemon=True).start()
print("up", flush=True)
while True:
    if peers:
        try:
            with socket.create_connection((peers[-1], int(os.environ["PORT"])), timeout=1) as other:
                other.sendall(me.encode())
            print("open", flush=True)
        except OSError:
            print("shut", flush=True)
    time.sleep(0.3)
"""
SHOW_MAP = 'print(open("/proc/self/uid_map").read())'
WRITE_ONCE = 'open("/data/probe", "w").write("written")'


@dataclass(frozen=True, kw_only=True)
class ProbeSpec:
    """One run of a check; ``id`` is that run's own, because a namespace's name is never used twice."""

    install: str
    id: str
    image: str
    pod_security: str = "baseline"
    image_pull_policy: str = "IfNotPresent"

    def __post_init__(self) -> None:
        check_image(self.image, self.image_pull_policy)
        require(bool(self.id), "bad_id", "id", "must not be empty")

    @property
    def identity(self) -> Identity:
        """What its objects are labelled with."""
        return Identity(install=self.install, kind=KIND, id=self.id, generation=1, name="check")

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        return names.slug_and_digest("check", "probe", self.id, prefix="mlp-")


def namespace(spec: ProbeSpec) -> Obj:
    """The namespace, with the Pod Security level that queues get."""
    metadata = pod.metadata(spec.identity, "namespace", name=spec.namespace)
    metadata["labels"]["pod-security.kubernetes.io/enforce"] = spec.pod_security
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def talker(spec: ProbeSpec, name: str, *, peer: str = "") -> Obj:
    """A pod that knocks at ``peer``'s address, or at whoever says its own."""
    env: list[Obj] = [
        {"name": "PEER", "value": peer},
        {"name": "PORT", "value": str(PORT)},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    return _pod(spec, name, TALK, env=env)


def mapped(spec: ProbeSpec) -> Obj:
    """A pod in a user namespace of its own that prints how its user ids are mapped."""
    return _pod(spec, MAPPED, SHOW_MAP, placement=Placement(host_users=False))


def mounting(spec: ProbeSpec, number: int, claims: list[str]) -> Obj:
    """A pod that mounts claims, for classes that give a volume only to a pod; it writes to the first."""
    mounts = tuple(
        Mount(claim=name, path="/data" if place == 0 else f"/data-{place}") for place, name in enumerate(claims)
    )
    return _pod(spec, f"{MOUNTING}-{number}", WRITE_ONCE, mounts=mounts)


def claim(spec: ProbeSpec, name: str, *, storage_class: str, access_mode: str) -> Obj:
    """A claim of 1 GiB of a class."""
    require_name(name, "name")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": pod.metadata(spec.identity, "claim", name=name, namespace=spec.namespace),
        "spec": {
            "accessModes": [access_mode],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": format_bytes(CLAIM_BYTES)}},
        },
    }


def policy(spec: ProbeSpec, *, in_force: bool) -> Obj:
    """Nothing in and nothing out for the guarded pod; out of force it selects nobody."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": pod.metadata(spec.identity, "network", name="deny", namespace=spec.namespace),
        "spec": {
            "podSelector": {"matchLabels": {_ROLE: GUARDED if in_force else "nobody"}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def privileged(spec: ProbeSpec) -> Obj:
    """A pod that no Pod Security level but ``privileged`` lets in; only ever sent as a dry run."""
    made = _pod(spec, "privileged", SHOW_MAP)
    made["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    return made


def _pod(
    spec: ProbeSpec,
    name: str,
    program: str,
    *,
    env: list[Obj] | None = None,
    mounts: tuple[Mount, ...] = (),
    placement: Placement | None = None,
) -> Obj:
    main = pod.container(
        image=spec.image, pull_policy=spec.image_pull_policy, resources=_SIZE, mounts=mounts, env=env or []
    )
    main["command"] = ["python", "-c", pod.literal(program)]
    body = pod.pod_spec(
        placement=placement or Placement(),
        resources=_SIZE,
        containers=[main],
        pod_volumes=pod.volumes(_SIZE, mounts),
        grace_s=0,
        restart_policy="Never",
    )
    body["activeDeadlineSeconds"] = POD_DEADLINE_S
    metadata = pod.metadata(spec.identity, "pod", name=name, namespace=spec.namespace)
    metadata["labels"][_ROLE] = name
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
