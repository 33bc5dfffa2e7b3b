"""What the lines about a Gateway say: is it there, is it served, and does a listener let the queues' routes in."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kubekit.build import queue
from kubekit.checkup import Line, gateways
from kubekit.checkup.gateways import QUEUE_LABELS, Wanted
from kubekit.specs import GatewayRef
from tests.kubekit.samples import queue_spec

WANTED = Wanted(ref=GatewayRef(namespace="infra", name="shared"), domain="apps.example.net", scheme="https")
GOOD = [{"type": "Accepted", "status": "True"}, {"type": "Programmed", "status": "True"}]
ALL = {"namespaces": {"from": "All"}}


def gateway(*listeners: dict[str, Any], conditions: list[dict[str, str]] = GOOD) -> dict[str, Any]:
    return {
        "spec": {"listeners": list(listeners)},
        "status": {"conditions": conditions, "addresses": [{"value": "203.0.113.7"}]},
    }


def listener(name: str = "web", **more: Any) -> dict[str, Any]:
    return {"name": name, "protocol": "HTTPS", "port": 8443, "allowedRoutes": ALL, **more}


def chosen(name: str) -> Wanted:
    return Wanted(
        ref=GatewayRef(namespace="infra", name="shared", listener=name), domain="apps.example.net", scheme="http"
    )


def verdict(line: Line) -> tuple[str, str]:
    return line.code.removeprefix(f"{line.topic}_"), line.result


def patch_of(line: Line) -> Any:
    found = re.fullmatch(r"kubectl patch gateway shared -n infra --type=json -p '(.*)'", line.command)
    assert found is not None, line.command
    (step,) = json.loads(found[1])
    assert step["op"] == "add"
    return step["path"], step["value"]


def test_the_labels_that_a_listener_may_ask_for_are_on_every_queue_s_namespace() -> None:
    assert QUEUE_LABELS.items() <= queue.namespace(queue_spec())["metadata"]["labels"].items()


# --- the Gateway -------------------------------------------------------------------------------------------------


def test_an_absent_gateway_comes_with_one_to_apply() -> None:
    line = gateways.parent(None, WANTED, classes=[{"metadata": {"name": "envoy"}}])
    assert verdict(line) == ("absent", "missing")
    made = json.loads(re.fullmatch(r"echo '(.*)' \| kubectl apply -f -", line.command)[1])  # type: ignore[index]
    assert (made["kind"], made["metadata"]) == ("Gateway", {"namespace": "infra", "name": "shared"})
    assert made["spec"]["gatewayClassName"] == "envoy"
    (one,) = made["spec"]["listeners"]
    assert (one["protocol"], one["port"], one["hostname"]) == ("HTTPS", 443, "*.apps.example.net")
    assert "certificateRefs" in one["tls"]
    served = {**made, "status": {"conditions": GOOD}}
    assert gateways.parent(served, WANTED, classes=[]).result == "good"
    assert gateways.listener(served, WANTED).result == "good", "what the command makes is what the next check wants"


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (GOOD, "good"),
        ([], "ignored"),
        ([{"type": "Accepted", "status": "Unknown"}, {"type": "Programmed", "status": "Unknown"}], "ignored"),
        ([{"type": "Accepted", "status": "False", "message": "port taken"}], "refused"),
        ([GOOD[0], {"type": "Programmed", "status": "False", "message": "port taken"}], "refused"),
        ([GOOD[0]], "refused"),
    ],
)
def test_a_gateway_counts_when_its_controller_says_accepted_and_programmed(conditions: Any, code: str) -> None:
    line = gateways.parent(gateway(conditions=conditions), WANTED, classes=[])
    assert verdict(line) == (code, "good" if code == "good" else "missing")
    assert bool(line.command) == (code != "good")
    assert line.evidence == (("port taken",) if "port taken" in str(conditions) else ())
    assert line.params["gateway"] == "infra/shared"


# --- its listeners -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostname", [None, "", "*.apps.example.net", "*.example.net", "*.net"],
)  # fmt: skip
def test_a_listener_for_the_hosts_is_good(hostname: str | None) -> None:
    one = listener() if hostname is None else listener(hostname=hostname)
    assert verdict(gateways.listener(gateway(one), WANTED)) == ("good", "good")


@pytest.mark.parametrize("hostname", ["apps.example.net", "*.b.apps.example.net", "*.other.net", "*.pps.example.net"])
def test_a_listener_for_other_hosts_is_not_and_the_command_adds_one(hostname: str) -> None:
    line = gateways.listener(gateway(listener(hostname=hostname, tls={"certificateRefs": [{"name": "own"}]})), WANTED)
    assert verdict(line) == ("hosts", "missing")
    path, added = patch_of(line)
    assert path == "/spec/listeners/-"
    assert (added["port"], added["tls"]) == (8443, {"certificateRefs": [{"name": "own"}]}), "as the one that is there"
    assert gateways.listener(gateway(added), WANTED).result == "good"


@pytest.mark.parametrize(
    ("allowed", "good"),
    [
        (None, False),
        ({}, False),
        ({"namespaces": {"from": "Same"}}, False),
        ({"namespaces": {"from": "None"}}, False),
        (ALL, True),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"mlportal.io/kind": "queue"}}}}, True),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}}, False),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"mlportal.io/kind": "probe"}}}}, False),
        *(
            (
                {
                    "namespaces": {
                        "from": "Selector",
                        "selector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]},
                    }
                },
                good,
            )
            for key, operator, values, good in (
                ("mlportal.io/kind", "In", ["queue", "x"], True),
                ("mlportal.io/kind", "NotIn", ["queue"], False),
                ("mlportal.io/kind", "Exists", [], True),
                ("mlportal.io/kind", "DoesNotExist", [], False),
                ("team", "Exists", [], False),
                ("team", "DoesNotExist", [], True),
                ("team", "In", ["a"], False),
                ("team", "Weird", [], False),
            )
        ),
    ],
)
def test_a_listener_must_let_in_the_namespaces_of_queues(allowed: Any, good: bool) -> None:
    one = {**listener(), "allowedRoutes": allowed}
    other = listener("other", hostname="*.other.net")
    line = gateways.listener(gateway(other, one), WANTED)
    assert verdict(line) == (("good", "good") if good else ("namespaces", "missing"))
    if not good:
        path, value = patch_of(line)
        assert path == "/spec/listeners/1/allowedRoutes"
        assert gateways.listener(gateway(other, {**one, "allowedRoutes": value}), WANTED).result == "good"


@pytest.mark.parametrize(
    "one",
    [
        listener(protocol="TLS"),
        listener(protocol="TCP"),
        listener(allowedRoutes={**ALL, "kinds": [{"kind": "GRPCRoute"}]}),
    ],
)
def test_a_listener_must_speak_http_and_take_http_routes(one: dict[str, Any]) -> None:
    assert verdict(gateways.listener(gateway(one), WANTED)) == ("kind", "missing")
    named = {**listener(), "allowedRoutes": {**ALL, "kinds": [{"kind": "GRPCRoute"}, {"kind": "HTTPRoute"}]}}
    assert gateways.listener(gateway(one, named), WANTED).result == "good"


def test_of_many_listeners_only_the_chosen_one_counts() -> None:
    many = gateway(listener("open"), listener("shut", allowedRoutes={}))
    assert verdict(gateways.listener(many, chosen("open"))) == ("good", "good")
    assert verdict(gateways.listener(many, chosen("shut"))) == ("namespaces", "missing")
    line = gateways.listener(many, chosen("gone"))
    assert verdict(line) == ("absent", "missing")
    assert line.params["listeners"] == "open, shut"
    path, added = patch_of(line)
    assert (path, added["name"], added["protocol"], added["port"]) == ("/spec/listeners/-", "gone", "HTTP", 80)
    assert verdict(gateways.listener(gateway(listener("shut", hostname="a.b")), chosen("shut"))) == ("hosts", "missing")


def test_what_others_wrote_into_the_gateway_cannot_leave_the_command_s_quotes() -> None:
    evil = {"certificateRefs": [{"name": "'; rm -rf / #"}]}
    line = gateways.listener(gateway(listener(hostname="*.other.net", tls=evil)), WANTED)
    assert line.command.count("'") == 2
    assert patch_of(line)[1]["tls"] == evil
