"""Addresses of pods, and whether one may reach the world outside."""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from localkube.node.agents import find_program
from localkube.selectors import from_object
from localkube.status import Object
from localkube.store import Store

_PODS: Final = ipaddress.ip_network("127.64.0.0/10")
_PASTA: Final = ("--quiet", "--foreground", "--config-net", "--no-map-gw")
_NO_FORWARDS: Final = ("-t", "none", "-u", "none", "-T", "none", "-U", "none")
_TUN: Final = Path("/dev/net/tun")


@dataclass(frozen=True)
class Egress:
    """What a pod may reach outside: nothing unless `allowed`, and never `blocked`."""

    allowed: bool
    blocked: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    """IPv4 networks that are reachable even inside a blocked one."""
    families: tuple[int, ...] = (4, 6)
    """IP versions with a way out."""


def egress(pod: Object, policies: Iterable[Object]) -> Egress:
    """What the NetworkPolicies of its namespace leave a pod, as far as localkube can tell them apart.

    A pod that no Egress policy selects may reach everything; otherwise it reaches what ipBlocks allow, or everything
    by a rule without peers. Ports are not looked at. `except` networks become unreachable.
    """
    rules: list[Object] = []
    selected = False
    labels = pod["metadata"].get("labels")
    for policy in policies:
        spec = policy["spec"]
        if policy["metadata"]["namespace"] != pod["metadata"]["namespace"]:
            continue
        if "Egress" not in spec.get("policyTypes", ["Ingress", *(["Egress"] if "egress" in spec else [])]):
            continue
        if from_object(spec.get("podSelector") or {}).matches(labels):
            selected = True
            rules += spec.get("egress") or []
    if not selected:
        return Egress(True)
    if any(not rule.get("to") and not rule.get("ports") for rule in rules):
        return Egress(True)
    blocked, families, opened = set[str](), set[int](), set[str]()
    for block in [peer["ipBlock"] for rule in rules for peer in rule.get("to") or [] if "ipBlock" in peer]:
        network = ipaddress.ip_network(block["cidr"])
        if network.prefixlen == 0:
            families.add(network.version)
        elif network.version == 4:
            opened.add(block["cidr"])
        else:
            continue
        blocked.update(block.get("except") or [])
    if opened and 4 not in families:
        families.add(4)
        blocked.add("0.0.0.0/0")
    return Egress(bool(families), tuple(sorted(blocked)), tuple(sorted(opened)), tuple(sorted(families)))


@dataclass
class Network:
    """Addresses in use, and the program that connects pods to the outside."""

    store: Store
    seed: str
    _taken: dict[str, str] = field(default_factory=dict)

    def pod_address(self, uid: str, wanted: str | None = None) -> str:
        """An address for a pod, the same after a restart where the store remembers it."""
        used = set(self._taken.values()) - {self._taken.get(uid, "")}
        number = int(hashlib.sha256(f"{self.seed} {uid}".encode()).hexdigest(), 16)
        address = wanted or ""
        while not address or address in used:
            number += 1
            address = str(_PODS[1 + number % (_PODS.num_addresses - 2)])
        self._taken[uid] = address
        return address

    def release(self, uid: str) -> None:
        """Give back the address of a pod."""
        self._taken.pop(uid, None)

    def egress(self, pod: Object) -> Egress:
        """What the pod's policies allow now. Policies are read when a pod starts."""
        policies, _ = self.store.list("networkpolicies", pod["metadata"]["namespace"])
        return egress(pod, policies)

    def pasta(self, families: tuple[int, ...] = (4, 6)) -> list[str] | None:
        """The command to give a pod outward traffic; None when this machine cannot."""
        program = find_program("pasta")
        if program is None or not os.access(_TUN, os.R_OK | os.W_OK):
            return None
        only = [f"-{families[0]}"] if len(families) == 1 else []
        return [program, *_PASTA, *only, *_NO_FORWARDS]

    @staticmethod
    def why_no_pasta() -> str:
        """The sentence for an event when `pasta` is None."""
        if find_program("pasta") is None:
            return "this pod has no way out: pasta is missing (package passt)"
        return f"this pod has no way out: {_TUN} is closed to this user (as root: chmod 0666 {_TUN})"


def nameservers(
    files: tuple[Path, ...] = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")),
) -> list[str]:
    """The host's IPv4 resolvers that are reachable from a pod: those on the host's loopback are not."""
    for path in files:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        found = [line.split()[1] for line in lines if line.startswith("nameserver") and len(line.split()) > 1]
        usable = [server for server in found if ":" not in server and not server.startswith("127.")]
        if usable:
            return usable
    return []
