"""Verdicts on the Gateway that leads to instances: is it there, is it served, does it let them in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubekit import names
from kubekit.checkup.model import Line
from kubekit.specs import GatewayRef

Raw = Mapping[str, Any]

#: What every namespace of a queue bears, whatever portal and whatever queue it is.
QUEUE_LABELS: Mapping[str, str] = {
    "app.kubernetes.io/name": "queue",
    "app.kubernetes.io/component": "namespace",
    "app.kubernetes.io/part-of": "mlportal",
    "app.kubernetes.io/managed-by": "mlportal",
    names.KIND: "queue",
}
_OURS: Mapping[str, Any] = {
    "from": "Selector",
    "selector": {"matchLabels": {"app.kubernetes.io/managed-by": "mlportal"}},
}
_PROTOCOLS = ("HTTP", "HTTPS")
_ADDED = "mlportal-instances"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the Gateway is wanted for: hosts below ``domain``, reached by ``scheme`` at ``port`` (0: its own)."""

    ref: GatewayRef
    domain: str
    scheme: str
    port: int = 0

    @property
    def params(self) -> dict[str, Any]:
        """For the sentences."""
        where = f"{self.ref.namespace}/{self.ref.name}"
        return {"gateway": where, "listener": self.ref.listener or "", "hosts": f"*.{self.domain}"}


def parent(raw: Raw | None, wanted: Wanted, *, classes: Sequence[Raw]) -> Line:
    """Whether the Gateway is there (None: it is not) and a controller has taken it up."""
    ref, params = wanted.ref, wanted.params
    if raw is None:
        command = _apply(_new_gateway(wanted, classes))
        return _parent("gateway_parent_absent", "missing", params, command=command)
    status = raw.get("status") or {}
    said = {row.get("type"): row for row in status.get("conditions") or ()}
    evidence = tuple(str(row["message"]) for row in said.values() if row.get("status") != "True" and row.get("message"))
    look = f"kubectl describe gateway {ref.name} -n {ref.namespace}"
    if all((said.get(kind) or {}).get("status", "Unknown") == "Unknown" for kind in ("Accepted", "Programmed")):
        return _parent("gateway_parent_ignored", "missing", params, command=look, evidence=evidence)
    if not all((said.get(kind) or {}).get("status") == "True" for kind in ("Accepted", "Programmed")):
        return _parent("gateway_parent_refused", "missing", params, command=look, evidence=evidence)
    addresses = [str(row.get("value", "")) for row in status.get("addresses") or ()]
    return _parent("gateway_parent_good", "good", {**params, "addresses": ", ".join(addresses) or "–"})


def listener(raw: Raw, wanted: Wanted) -> Line:
    """Whether a listener takes routes of queues' namespaces for the instances' hosts."""
    ref, params = wanted.ref, wanted.params
    every = list((raw.get("spec") or {}).get("listeners") or ())
    known = [str(one.get("name", "")) for one in every]
    params["listeners"] = ", ".join(known) or "–"
    asked = [one for one in every if ref.listener in (None, one.get("name"))]
    add = _patch(ref, "/spec/listeners/-", _new_listener(wanted, ref.listener or _ADDED, like=every))
    if not asked:
        return _listener("gateway_listener_absent", "missing", params, command=add)
    speaking = [one for one in asked if one.get("protocol") in _PROTOCOLS and _takes_routes(one)]
    if not speaking:
        return _listener("gateway_listener_kind", "missing", params, command="" if ref.listener else add)
    fitting = [one for one in speaking if _covers(str(one.get("hostname") or ""), wanted.domain)]
    if not fitting:
        return _listener("gateway_listener_hosts", "missing", params, command="" if ref.listener else add)
    admitting = [one for one in fitting if _admits(one)]
    if not admitting:
        path = f"/spec/listeners/{every.index(fitting[0])}/allowedRoutes"
        command = _patch(ref, path, {"namespaces": _OURS})
        return _listener("gateway_listener_namespaces", "missing", params, command=command)
    used = ", ".join(str(one.get("name", "")) for one in admitting)
    return _listener("gateway_listener_good", "good", {**params, "listeners": used})


def _parent(code: str, result: Any, params: Mapping[str, Any], **more: Any) -> Line:
    return Line(topic="gateway_parent", code=code, result=result, params=params, **more)


def _listener(code: str, result: Any, params: Mapping[str, Any], **more: Any) -> Line:
    return Line(topic="gateway_listener", code=code, result=result, params=params, **more)


def _takes_routes(one: Raw) -> bool:
    kinds = (one.get("allowedRoutes") or {}).get("kinds") or ()
    return not kinds or any(kind.get("kind") == "HTTPRoute" for kind in kinds)


def _covers(hostname: str, domain: str) -> bool:
    """Whether a listener of this host name (empty: any) takes every host one label below ``domain``."""
    if not hostname:
        return True
    return hostname.startswith("*.") and f".{domain}".endswith(hostname[1:])


def _admits(one: Raw) -> bool:
    """Whether routes may come from a namespace with `QUEUE_LABELS`, one that is not the Gateway's own."""
    spaces = (one.get("allowedRoutes") or {}).get("namespaces") or {}
    if spaces.get("from", "Same") == "All":
        return True
    return spaces.get("from") == "Selector" and _selects(spaces.get("selector") or {}, QUEUE_LABELS)


def _selects(selector: Raw, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(row, labels) for row in selector.get("matchExpressions") or ())


def _holds(row: Raw, labels: Mapping[str, str]) -> bool:
    key, values = str(row.get("key", "")), row.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(str(row.get("operator")), False)


# -- commands ----------------------------------------------------------------------------------------------------


def _new_gateway(wanted: Wanted, classes: Sequence[Raw]) -> Raw:
    found = [str((one.get("metadata") or {}).get("name", "")) for one in classes]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"namespace": wanted.ref.namespace, "name": wanted.ref.name},
        "spec": {
            "gatewayClassName": found[0] if found else "CLASS",
            "listeners": [_new_listener(wanted, wanted.ref.listener or _ADDED, like=())],
        },
    }


def _new_listener(wanted: Wanted, name: str, *, like: Sequence[Raw]) -> Raw:
    """A listener for the instances' hosts, with port and certificate of one that is there and speaks the same."""
    protocol = wanted.scheme.upper()
    model = next((one for one in like if one.get("protocol") == protocol), {})
    made: dict[str, Any] = {
        "name": name,
        "protocol": protocol,
        "port": model.get("port") or wanted.port or (443 if protocol == "HTTPS" else 80),
        "hostname": f"*.{wanted.domain}",
        "allowedRoutes": {"namespaces": _OURS},
    }
    if protocol == "HTTPS":
        made["tls"] = model.get("tls") or {"certificateRefs": [{"name": "SECRET-WITH-CERTIFICATE"}]}
    return made


def _apply(obj: Raw) -> str:
    return f"echo '{_json(obj)}' | kubectl apply -f -"


def _patch(ref: GatewayRef, path: str, value: Any) -> str:
    body = _json([{"op": "add", "path": path, "value": value}])
    return f"kubectl patch gateway {ref.name} -n {ref.namespace} --type=json -p '{body}'"


def _json(value: Any) -> str:
    """For single quotes of a shell: what others wrote into it (a listener's ``tls``) cannot end them."""
    return json.dumps(value, separators=(",", ":")).replace("'", "\\u0027")
