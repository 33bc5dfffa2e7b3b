"""EndpointSlices: the ready pods behind each service that selects any."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any

from localkube import pods
from localkube.controllers.base import Controller, controller_ref, key_of
from localkube.status import Object
from localkube.store import copy


class EndpointsController(Controller):
    """Follows services and pods; writes only what differs. A slice goes with its service, by its owner reference."""

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
        if service is None or service["metadata"].get("deletionTimestamp") or not service["spec"].get("selector"):
            return
        selector = service["spec"]["selector"].items()
        found = [
            pod
            for pod in self.store.iterate("pods", key[0])
            if selector <= (pod["metadata"].get("labels") or {}).items()
            and pod.get("status", {}).get("podIP")
            and not pods.ended(pod)
        ]
        found.sort(key=lambda pod: str(pod["metadata"]["name"]))
        self._write(service, found)

    def _write(self, service: Object, found: list[Object]) -> None:
        metadata = service["metadata"]
        name = f"{metadata['name']}-{hashlib.sha256(metadata['uid'].encode()).hexdigest()[:5]}"
        everyone = bool(service["spec"].get("publishNotReadyAddresses"))
        content = {
            "addressType": "IPv4",
            "endpoints": [_endpoint(pod, everyone) for pod in found],
            "ports": [_port(port, found[0]) for port in service["spec"].get("ports") or ()] if found else [],
        }
        stored = self.store.peek("endpointslices", metadata["namespace"], name)
        if stored is not None:
            self.store.update("endpointslices", copy(stored) | content)
            return
        labels = {
            **(metadata.get("labels") or {}),
            "kubernetes.io/service-name": metadata["name"],
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        own = {"name": name, "namespace": metadata["namespace"], "labels": labels}
        self.store.create(
            "endpointslices", {"metadata": own | {"ownerReferences": [controller_ref(service)]}} | content
        )


def _endpoint(pod: Object, everyone: bool) -> Object:
    metadata, leaving = pod["metadata"], bool(pod["metadata"].get("deletionTimestamp"))
    serving = everyone or pods.is_ready(pod)
    reference = {key: metadata[key] for key in ("namespace", "name", "uid")}
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": serving and not leaving, "serving": serving, "terminating": leaving},
        "targetRef": {"kind": "Pod"} | reference,
        "nodeName": pod["spec"].get("nodeName", ""),
    }


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
    named = {"name": port["name"]} if port.get("name") else {}
    return {"port": target_port(port, pod), "protocol": port.get("protocol", "TCP")} | named
