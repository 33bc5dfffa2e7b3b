"""StatefulSets: pods with stable names, made and ended in order, replaced when the template changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from typing import Final

from localkube import events, pods
from localkube.controllers.base import Controller, controller_of, controller_ref, key_of
from localkube.status import ApiError, Object
from localkube.store import copy

_COMPONENT: Final = "statefulset-controller"
_REVISION: Final = "controller-revision-hash"
_HASH_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


def revision_of(stateful_set: Object) -> str:
    """The name of a template's revision: the same template, the same name."""
    text = json.dumps(stateful_set["spec"]["template"], sort_keys=True)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
    letters = ""
    for _ in range(10):
        number, index = divmod(number, len(_HASH_LETTERS))
        letters += _HASH_LETTERS[index]
    return f"{stateful_set['metadata']['name']}-{letters}"


class StatefulSetController(Controller):
    """One pod per ordinal; OrderedReady waits for each to be ready, Parallel does not."""

    name = _COMPONENT

    def watch(self) -> None:
        self.follow("statefulsets", key_of)
        self.follow("pods", self._owner_key)
        self._unsubscribe.append(self.store.subscribe("resourcequotas", self._on_quota))

    def _owner_key(self, _event_type: str, pod: Object) -> Hashable | None:
        ref = controller_of(pod)
        return (pod["metadata"]["namespace"], ref["name"]) if ref and ref["kind"] == "StatefulSet" else None

    def _on_quota(self, _event_type: str, quota: Object) -> None:
        """Room in a quota lets refused pods in without waiting for the retry."""
        namespace = quota["metadata"]["namespace"]
        for key in tuple(self._failures):
            if isinstance(key, tuple) and key[0] == namespace:
                self.enqueue(key)

    def reconcile(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        stateful_set = self.store.peek("statefulsets", *key)
        if stateful_set is None:
            return
        owned = self._pods(stateful_set)
        if not stateful_set["metadata"].get("deletionTimestamp"):
            try:
                self._scale(stateful_set, owned)
            finally:
                self._report(stateful_set)

    def _pods(self, stateful_set: Object) -> dict[int, Object]:
        uid, prefix = stateful_set["metadata"]["uid"], stateful_set["metadata"]["name"] + "-"
        found = {}
        for pod in self.store.iterate("pods", stateful_set["metadata"]["namespace"]):
            ref = controller_of(pod)
            ordinal = pod["metadata"]["name"].removeprefix(prefix)
            if ref and ref["uid"] == uid and ordinal.isdigit():
                found[int(ordinal)] = pod
        return found

    def _scale(self, stateful_set: Object, owned: dict[int, Object]) -> None:
        spec = stateful_set["spec"]
        wanted = range(spec["replicas"])
        ordered = spec.get("podManagementPolicy") != "Parallel"
        revision = revision_of(stateful_set)
        surplus = sorted((ordinal for ordinal in owned if ordinal not in wanted), reverse=True)
        for ordinal in wanted:
            pod = owned.get(ordinal)
            if pod and pods.ended(pod):
                # A pod of a set never stays ended: it is removed, and its deletion brings the next one.
                self._delete(stateful_set, pod)
                return
            if pod is None:
                self._create(stateful_set, ordinal, revision)
                if ordered:
                    return
            elif ordered and (not pods.is_ready(pod) or pod["metadata"].get("deletionTimestamp")):
                break
        for ordinal in surplus[:1] if ordered else surplus:
            self._delete(stateful_set, owned[ordinal])
        if not surplus and spec["updateStrategy"]["type"] != "OnDelete":
            self._roll(stateful_set, owned, wanted, revision)

    def _roll(self, stateful_set: Object, owned: dict[int, Object], wanted: range, revision: str) -> None:
        """Delete one pod of an old revision, the highest first; the next when it is back and ready.

        Unlike the real controller this replaces a pod that never became ready too, so a broken template can be mended.
        """
        for ordinal in reversed(wanted):
            pod = owned.get(ordinal)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return
            current = (pod["metadata"].get("labels") or {}).get(_REVISION) == revision
            if not current:
                self._delete(stateful_set, pod)
            if not current or not pods.is_ready(pod):
                return

    def _create(self, stateful_set: Object, ordinal: int, revision: str) -> None:
        metadata = stateful_set["metadata"]
        name = f"{metadata['name']}-{ordinal}"
        pod = self._pod(stateful_set, ordinal, name, revision)
        try:
            self.registry.create(self.store.resources["pods"], metadata["namespace"], pod)
        except ApiError as error:
            if error.code == 409:
                return
            text = f"Create Pod {name} in StatefulSet {metadata['name']} failed error: {error.message}"
            self._record(stateful_set, "FailedCreate", text, type_="Warning")
            raise
        self._record(
            stateful_set, "SuccessfulCreate", f"Create Pod {name} in StatefulSet {metadata['name']} successful"
        )

    def _pod(self, stateful_set: Object, ordinal: int, name: str, revision: str) -> Object:
        spec = stateful_set["spec"]
        template = copy(spec["template"])
        template_metadata = template.get("metadata") or {}
        labels = (template_metadata.get("labels") or {}) | {
            "apps.kubernetes.io/pod-index": str(ordinal),
            _REVISION: revision,
            "statefulset.kubernetes.io/pod-name": name,
        }
        pod_spec = template["spec"]
        pod_spec["hostname"] = name
        if spec.get("serviceName"):
            pod_spec["subdomain"] = spec["serviceName"]
        return {
            "metadata": {
                "name": name,
                "generateName": stateful_set["metadata"]["name"] + "-",
                "labels": labels,
                "annotations": template_metadata.get("annotations") or {},
                "finalizers": template_metadata.get("finalizers") or [],
                "ownerReferences": [controller_ref(stateful_set)],
            },
            "spec": pod_spec,
        }

    def _delete(self, stateful_set: Object, pod: Object) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        self.store.delete("pods", metadata["namespace"], metadata["name"], uid=metadata["uid"])
        owner = stateful_set["metadata"]["name"]
        text = f"delete Pod {metadata['name']} in StatefulSet {owner} successful"
        self._record(stateful_set, "SuccessfulDelete", text)

    def _report(self, stateful_set: Object) -> None:
        metadata = stateful_set["metadata"]
        current = self.store.peek("statefulsets", metadata["namespace"], metadata["name"])
        if current is None:
            return
        alive = [p for p in self._pods(current).values() if not pods.ended(p)]
        revision, old = revision_of(current), current.get("status", {})
        ready = sum(1 for p in alive if pods.is_ready(p))
        updated = _count(alive, revision)
        base = revision if updated == len(alive) else old.get("currentRevision") or revision
        counts = {"readyReplicas": ready, "currentReplicas": _count(alive, base), "updatedReplicas": updated}
        status: Object = {
            "observedGeneration": current["metadata"]["generation"],
            "replicas": len(alive),
            "availableReplicas": ready,
            "currentRevision": base,
            "updateRevision": revision,
            "collisionCount": 0,
            **{name: count for name, count in counts.items() if count},
        }
        if old != status:
            changed = copy(current)
            changed["status"] = status
            self.store.update("statefulsets", changed, subresource="status")

    def _record(self, stateful_set: Object, reason: str, text: str, *, type_: str = "Normal") -> None:
        events.record(self.store, stateful_set, reason=reason, message=text, component=_COMPONENT, type_=type_)


def _count(alive: list[Object], revision: str) -> int:
    return sum(1 for pod in alive if (pod["metadata"].get("labels") or {}).get(_REVISION) == revision)
