"""What NetworkPolicies leave a pod to reach outside, as a pure function; and addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localkube.node.network import Egress, Network, egress, nameservers
from localkube.store import Store

ANY = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}
DNS = {"ports": [{"port": 53, "protocol": "UDP"}]}
INSIDE = {"to": [{"namespaceSelector": {}}]}


def policy(*rules: Any, selector: Any = None, types: Any = ("Egress",), namespace: str = "default") -> Any:
    spec: dict[str, Any] = {"podSelector": selector or {}, "policyTypes": list(types)}
    if rules:
        spec["egress"] = list(rules)
    return {"metadata": {"namespace": namespace}, "spec": spec}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([], Egress(True)),
        ([policy()], Egress(False, families=())),
        ([policy(types=["Ingress"])], Egress(True)),
        ([policy(namespace="other")], Egress(True)),
        ([policy(selector={"matchLabels": {"app": "else"}})], Egress(True)),
        ([policy({})], Egress(True)),
        ([policy(DNS)], Egress(False, families=())),
        ([policy(DNS, INSIDE)], Egress(False, families=())),
        ([policy(), policy({"to": [ANY]})], Egress(True, ("10.0.0.0/8",), families=(4,))),
        (
            [policy({"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]})],
            Egress(True, ("0.0.0.0/0",), ("10.1.0.0/16",), (4,)),
        ),
        (
            [policy({"to": [ANY]}), policy({"to": [{"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.2.0/24"]}}]})],
            Egress(True, ("10.0.0.0/8", "10.1.2.0/24"), ("10.1.0.0/16",), (4,)),
        ),
        ([policy({"to": [{"ipBlock": {"cidr": "fd00::/8"}}]})], Egress(False, families=())),
        ([policy({"to": [ANY, {"ipBlock": {"cidr": "::/0"}}]})], Egress(True, ("10.0.0.0/8",))),
    ],
)
def test_egress_is_what_the_policies_together_allow(policies: Any, expected: Egress) -> None:
    pod = {"metadata": {"namespace": "default", "labels": {"app": "mine"}}}
    assert egress(pod, policies) == expected


def test_addresses_are_loopback_differ_and_come_back() -> None:
    network = Network(Store(None), "here")
    one, two = network.pod_address("a"), network.pod_address("b")
    assert one != two
    assert one.startswith("127.")
    assert network.pod_address("a") == one
    network.release("a")
    assert network.pod_address("c", one) == one
    assert network.pod_address("a") != one


def test_resolvers_on_the_hosts_loopback_are_replaced_by_those_behind_them(tmp_path: Path) -> None:
    stub, upstream = tmp_path / "stub", tmp_path / "upstream"
    stub.write_text("nameserver 127.0.0.53\nsearch lan\n")
    upstream.write_text("# from DHCP\nnameserver 192.0.2.1\nnameserver fe80::1\n")
    assert nameservers((stub, upstream)) == ["192.0.2.1"]
    assert nameservers((stub,)) == []
