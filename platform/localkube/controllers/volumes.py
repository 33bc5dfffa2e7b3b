"""Claims and volumes: each claim of a class of ours gets a volume of its own at once, and the volume goes with it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from localkube import events
from localkube.bootstrap import PROVISIONER
from localkube.controllers.base import Controller, key_of
from localkube.events import reference
from localkube.quantity import parse
from localkube.status import Object
from localkube.store import copy

_COMPONENT: Final = "persistentvolume-controller"
_IN_USE: Final = "kubernetes.io/pvc-protection"


class VolumeController(Controller):
    """Binds, expands and protects claims; deletes volumes.

    The node keeps a volume's data and deletes it when the PersistentVolume is deleted.
    """

    name = _COMPONENT

    def watch(self) -> None:
        self.follow("persistentvolumeclaims", self._on_claim)
        self.follow("persistentvolumes", self._on_volume)
        self._unsubscribe.append(self.store.subscribe("pods", self._on_pod))
        self._unsubscribe.append(self.store.subscribe("storageclasses", self._on_class))

    def _on_claim(self, event_type: str, claim: Object) -> Hashable | None:
        volume = claim["spec"].get("volumeName")
        if event_type == "DELETED" and volume:
            return "", volume
        return key_of(event_type, claim)

    def _on_volume(self, _event_type: str, volume: Object) -> Hashable | None:
        return "", volume["metadata"]["name"]

    def _on_pod(self, event_type: str, pod: Object) -> None:
        if event_type != "DELETED" and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            return
        for name in _claims_of(pod):
            self.enqueue((pod["metadata"]["namespace"], name))

    def _on_class(self, _event_type: str, _obj: Object) -> None:
        for claim in self.store.iterate("persistentvolumeclaims"):
            if claim.get("status", {}).get("phase") != "Bound":
                self.enqueue(key_of("", claim))

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        namespace, name = key
        if not namespace:
            self._reconcile_volume(name)
            return
        claim = self.store.peek("persistentvolumeclaims", namespace, name)
        if claim is None:
            return
        if claim["metadata"].get("deletionTimestamp"):
            self._let_go(claim)
        elif claim.get("status", {}).get("phase") == "Bound":
            self._expand(claim)
        else:
            self._bind(claim)

    def _let_go(self, claim: Object) -> None:
        metadata = claim["metadata"]
        if _IN_USE not in (metadata.get("finalizers") or ()):
            return
        for pod in self.store.iterate("pods", metadata["namespace"]):
            ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if metadata["name"] in _claims_of(pod) and pod["spec"].get("nodeName") and not ended:
                return
        changed = copy(claim)
        changed["metadata"]["finalizers"].remove(_IN_USE)
        self.store.update("persistentvolumeclaims", changed)

    def _bind(self, claim: Object) -> None:
        class_name = claim["spec"].get("storageClassName")
        if not class_name:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._record(claim, "FailedBinding", text)
            return
        storage_class = self.store.peek("storageclasses", None, class_name)
        if storage_class is None:
            text = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._record(claim, "ProvisioningFailed", text, type_="Warning")
            return
        if storage_class.get("provisioner") != PROVISIONER:
            text = (
                "Waiting for a volume to be created either by the external provisioner "
                f"'{storage_class.get('provisioner')}' or manually by the system administrator. If volume creation is "
                "delayed, please verify that the provisioner is running and correctly registered."
            )
            self._record(claim, "ExternalProvisioning", text)
            return
        # A localkube that was killed between the two has left the volume.
        made = self.store.peek("persistentvolumes", None, f"pvc-{claim['metadata']['uid']}")
        self._mark_bound(claim, made or self._provision(claim, storage_class))

    def _provision(self, claim: Object, storage_class: Object) -> Object:
        metadata = claim["metadata"]
        name = f"pvc-{metadata['uid']}"
        volume = {
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
            "spec": {
                "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
                "accessModes": claim["spec"]["accessModes"],
                "claimRef": reference(claim),
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": storage_class["metadata"]["name"],
                "volumeMode": "Filesystem",
                "hostPath": {"path": str(self.config.home / "volumes" / name), "type": ""},
            },
            "status": {"phase": "Available"},
        }
        created = self.store.create("persistentvolumes", volume)
        self._record(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
        return created

    def _mark_bound(self, claim: Object, volume: Object) -> None:
        self.store.update("persistentvolumes", copy(volume) | {"status": {"phase": "Bound"}}, subresource="status")
        changed = copy(claim)
        changed["spec"]["volumeName"] = volume["metadata"]["name"]
        annotations = changed["metadata"].setdefault("annotations", {})
        annotations |= {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        changed["metadata"].pop("resourceVersion", None)
        bound = self.store.update("persistentvolumeclaims", changed)
        bound["status"] = {
            "phase": "Bound",
            "accessModes": volume["spec"]["accessModes"],
            "capacity": volume["spec"]["capacity"],
        }
        self.store.update("persistentvolumeclaims", bound, subresource="status")

    def _expand(self, claim: Object) -> None:
        wanted = claim["spec"]["resources"]["requests"]["storage"]
        held = claim.get("status", {}).get("capacity", {}).get("storage", "0")
        if parse(wanted) <= parse(held):
            return
        class_name = claim["spec"].get("storageClassName") or ""
        storage_class = self.store.peek("storageclasses", None, class_name)
        if not storage_class or not storage_class.get("allowVolumeExpansion"):
            return
        volume = self.store.get("persistentvolumes", None, claim["spec"]["volumeName"])
        volume["spec"]["capacity"] = {"storage": wanted}
        self.store.update("persistentvolumes", volume)
        changed = copy(claim)
        changed["status"]["capacity"] = {"storage": wanted}
        self.store.update("persistentvolumeclaims", changed, subresource="status")
        self._record(claim, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume")

    def _reconcile_volume(self, name: str) -> None:
        """A volume goes with its claim, and not before it."""
        volume = self.store.peek("persistentvolumes", None, name)
        if volume is None:
            return
        ref = volume["spec"]["claimRef"]
        claim = self.store.peek("persistentvolumeclaims", ref["namespace"], ref["name"])
        if claim is None or claim["metadata"]["uid"] != ref["uid"]:
            self.store.delete("persistentvolumes", None, name)

    def _record(self, claim: Object, reason: str, text: str, *, type_: str = "Normal") -> None:
        events.record(self.store, claim, reason=reason, message=text, component=_COMPONENT, type_=type_)


def _claims_of(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim")]
