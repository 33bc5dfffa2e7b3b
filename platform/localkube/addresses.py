"""Addresses of services: one of 127.96.0.0/16 each, so that this machine can listen on it without set-up."""

from __future__ import annotations

import ipaddress
from typing import Final

from localkube import status
from localkube.changes import Event
from localkube.status import FieldError, Object
from localkube.store import Store

NETWORK: Final = ipaddress.ip_network("127.96.0.0/16")


class ServiceAddresses:
    """Gives every service a free address and takes it back with the service."""

    def __init__(self, store: Store) -> None:
        self._used = {s.get("spec", {}).get("clusterIP") for s in store.iterate("services")}
        self._next = 1
        store.hooks.append(self._on_commit)

    def assign(self, service: Object) -> None:
        """Fill clusterIP and clusterIPs. Raises ApiError 422 when a wanted address is taken or none is left."""
        spec = service["spec"]
        if spec.get("type") == "ExternalName":
            return
        wanted = spec.get("clusterIP")
        if wanted and wanted != "None" and wanted in self._used:
            errors = [
                FieldError.invalid(
                    "spec.clusterIPs", [wanted], "failed to allocate IP: provided IP is already allocated"
                )
            ]
            raise status.invalid("", "Service", service["metadata"]["name"], errors)
        spec["clusterIP"] = wanted or self._free()
        spec["clusterIPs"] = [spec["clusterIP"]]

    def _free(self) -> str:
        size = NETWORK.num_addresses - 2
        for _ in range(size):
            address = str(NETWORK[self._next])
            self._next = self._next % size + 1
            if address not in self._used:
                return address
        raise status.ApiError(500, "Internal error occurred: failed to allocate a serviceIP: range is full")

    def _on_commit(self, event: Event) -> None:
        if event.resource != "services":
            return
        address = event.obj.get("spec", {}).get("clusterIP")
        if event.type == "DELETED":
            self._used.discard(address)
        elif address:
            self._used.add(address)
