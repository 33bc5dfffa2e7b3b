"""Events about objects, counted up when the same thing happens again as the real recorders do."""

from __future__ import annotations

import hashlib

from localkube.status import ApiError, Object
from localkube.store import Store, now


def reference(obj: Object, field_path: str = "") -> Object:
    """An ObjectReference to an object, with a field path such as `spec.containers{main}`."""
    metadata = obj["metadata"]
    ref = {
        "kind": obj["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": obj["apiVersion"],
        "resourceVersion": metadata["resourceVersion"],
        "fieldPath": field_path,
    }
    return {key: value for key, value in ref.items() if value}


def record(
    store: Store,
    obj: Object,
    *,
    reason: str,
    message: str,
    component: str,
    type_: str = "Normal",
    host: str = "",
    field_path: str = "",
) -> None:
    """Store an event (`core/v1`), or raise the count of the same one. Does nothing when the namespace is gone."""
    ref = reference(obj, field_path)
    namespace = ref.get("namespace", "default")
    seed = "\0".join((ref["uid"], field_path, type_, reason, message, component, host))
    name = f"{ref['name'][:200]}.{hashlib.sha256(seed.encode()).hexdigest()[:16]}"
    stamp = now()
    previous = store.peek("events", namespace, name)
    try:
        if previous:
            event = store.get("events", namespace, name)
            event["count"] = event.get("count", 1) + 1
            event["lastTimestamp"] = stamp
            store.update("events", event)
            return
        source = {"component": component} | ({"host": host} if host else {})
        store.create(
            "events",
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": ref,
                "reason": reason,
                "message": message,
                "source": source,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
                "type": type_,
                "eventTime": None,
                "reportingComponent": component,
                "reportingInstance": host,
            },
        )
    except ApiError as error:
        if error.code != 404:
            raise
