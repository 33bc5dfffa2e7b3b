"""Endpoints and EndpointSlices: the ready pods behind each service that selects any."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any, Final

from localkube import pods
from localkube.controllers.base import Controller, controller_ref, key_of
from localkube.selectors import from_object
from localkube.status import Object
from localkube.store import copy

_MANAGED_BY: Final = "endpointslice-controller.k8s.io"


class EndpointsController(Controller):
    """Follows services and pods; writes only what differs."""

    name = "endpoints-controller"

    def watch(self) -> None:
        self.follow("services", key_of)
        self._unsubscribe.append(self.store.subscribe("pods", self._on_pod))

    def _on_pod(self, _event_type: str, pod: Object) -> None:
        labels = pod["metadata"].get("labels") or {}
        for service in self.store.iterate("services", pod["metadata"]["namespace"]):
            selector = service["spec"].get("selector")
            if selector and selector.items() <= labels.items():
                self.enqueue(key_of("", service))

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        service = self.store.peek("services", *key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            self._remove(*key)
            return
        if not service["spec"].get("selector"):
            return
        selector = from_object({"matchLabels": service["spec"]["selector"]})
        found = [
            pod
            for pod in self.store.iterate("pods", key[0])
            if selector.matches(pod["metadata"].get("labels"))
            and pod.get("status", {}).get("podIP")
            and not pods.ended(pod)
        ]
        found.sort(key=lambda pod: str(pod["metadata"]["name"]))
        self._write(service, found)

    def _remove(self, namespace: str, name: str) -> None:
        if self.store.peek("endpoints", namespace, name) is not None:
            self.store.delete("endpoints", namespace, name)

    def _write(self, service: Object, found: list[Object]) -> None:
        metadata = service["metadata"]
        everyone = bool(service["spec"].get("publishNotReadyAddresses"))
        ports = [_port(port, found[0]) for port in service["spec"].get("ports") or ()] if found else []
        ready = [
            pod for pod in found if (everyone or pods.is_ready(pod)) and not pod["metadata"].get("deletionTimestamp")
        ]
        waiting = [pod for pod in found if pod not in ready and not pod["metadata"].get("deletionTimestamp")]
        subset: Object = {}
        if ready:
            subset["addresses"] = [_address(pod) for pod in ready]
        if waiting:
            subset["notReadyAddresses"] = [_address(pod) for pod in waiting]
        labels = metadata.get("labels") or {}
        self._put(
            "endpoints",
            {
                "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels},
                "subsets": [subset | {"ports": ports}] if subset else [],
            },
        )
        endpoints = [
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {
                    "ready": pod in ready,
                    "serving": everyone or pods.is_ready(pod),
                    "terminating": bool(pod["metadata"].get("deletionTimestamp")),
                },
                "targetRef": _ref(pod),
                "nodeName": pod["spec"].get("nodeName", ""),
            }
            for pod in found
        ]
        suffix = hashlib.sha256(metadata["uid"].encode()).hexdigest()[:5]
        self._put(
            "endpointslices",
            {
                "metadata": {
                    "name": f"{metadata['name']}-{suffix}",
                    "namespace": metadata["namespace"],
                    "labels": labels
                    | {
                        "kubernetes.io/service-name": metadata["name"],
                        "endpointslice.kubernetes.io/managed-by": _MANAGED_BY,
                    },
                    "ownerReferences": [controller_ref(service)],
                },
                "addressType": "IPv4",
                "endpoints": endpoints,
                "ports": ports,
            },
        )

    def _put(self, resource: str, wanted: Object) -> None:
        metadata = wanted["metadata"]
        stored = self.store.peek(resource, metadata["namespace"], metadata["name"])
        if stored is None:
            self.store.create(resource, wanted)
            return
        changed = copy(stored) | {key: value for key, value in wanted.items() if key != "metadata"}
        changed["metadata"]["labels"] = metadata["labels"]
        self.store.update(resource, changed)


def _ref(pod: Object) -> Object:
    metadata = pod["metadata"]
    return {"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}


def _address(pod: Object) -> Object:
    return {"ip": pod["status"]["podIP"], "nodeName": pod["spec"].get("nodeName", ""), "targetRef": _ref(pod)}


def target_port(port: Object, pod: Object) -> Any:
    """The pod's port behind a service's port: names are looked up in the containers; None when none has it."""
    target = port.get("targetPort", port["port"])
    if not isinstance(target, str):
        return target
    for container in pod["spec"].get("containers") or ():
        for candidate in container.get("ports") or ():
            if candidate.get("name") == target:
                return candidate["containerPort"]
    return None


def _port(port: Object, pod: Object) -> Object:
    out: Object = {"port": target_port(port, pod), "protocol": port.get("protocol", "TCP")}
    if port.get("name"):
        out["name"] = port["name"]
    return out
