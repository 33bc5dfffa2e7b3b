"""A dev instance: Secret, StatefulSet (0 or 1 replicas), Service and route, all of one name.

Start: apply the Secret (new key), the route, then replicas 1. Stop: delete the route first, then replicas 0; the
Secret keeps the lasting SSH host key. The StatefulSet's strategy is ``OnDelete``: changing it (a new generation,
another image) never restarts a running pod behind its owner's back, it takes effect at the next start.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from kubekit import keyfile, names, tools
from kubekit.build import pod
from kubekit.specs import KEY_PATH, GatewayRef, InstanceSpec, check_secret_key

Obj = dict[str, Any]

HTTP = "http"
SERVICE_PORT = 80
SSH = "ssh"
#: sshd's inside. No Service leads there: the portal's own entrance goes to the pod, whichever one it is.
SSH_PORT = 2222


def secret(spec: InstanceSpec, data: Mapping[str, str]) -> Obj:
    """The Secret; ``data`` maps ``key``, ``ssh-host-key`` and ``authorized_keys`` to text. Never log the result."""
    for key in data:
        check_secret_key(key)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": pod.metadata(spec.identity, "key", name=spec.object_name, namespace=spec.namespace),
        "type": "Opaque",
        "data": {key: b64encode(value.encode()).decode() for key, value in data.items()},
    }


def stateful_set(spec: InstanceSpec, *, replicas: int) -> Obj:
    """The instance's StatefulSet; ``replicas`` is 0 (stopped) or 1."""
    if replicas not in (0, 1):
        raise ValueError(f"an instance has 0 or 1 replicas, not {replicas}")
    own = {
        "MLPORTAL_INSTANCE_ID": spec.identity.id,
        "MLPORTAL_HOST": spec.public_host,
        "MLPORTAL_PORTAL_ORIGIN": spec.portal_origin,
    }
    main = pod.container(
        image=spec.image,
        pull_policy=spec.image_pull_policy,
        resources=spec.resources,
        mounts=spec.mounts,
        env=pod.environment(own, spec.env),
        extra_mounts=[{"name": "mlportal", "mountPath": KEY_PATH, "readOnly": True}, keyfile.mount()],
    )
    main["ports"] = [
        {"name": HTTP, "containerPort": spec.port, "protocol": "TCP"},
        {"name": SSH, "containerPort": SSH_PORT, "protocol": "TCP"},
    ]
    main["readinessProbe"] = {
        "httpGet": {"path": spec.ready_path, "port": HTTP},
        "periodSeconds": 1,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    }
    # Readable by the group alone: the pod's files belong to root and fsGroup.
    keys: Obj = {"name": "mlportal", "secret": {"secretName": spec.object_name, "defaultMode": 0o440}}
    volumes = pod.volumes(spec.resources, spec.mounts, extra=[keys, keyfile.volume()])
    pod_labels = names.labels(spec.identity, "pod")
    pod_spec = pod.pod_spec(
        placement=spec.placement,
        resources=spec.resources,
        containers=[main],
        pod_volumes=volumes,
        grace_s=spec.grace_s,
        restart_policy="Always",
    )
    if spec.tools_image is not None:
        main["command"] = list(tools.COMMAND)
        main["volumeMounts"].append(tools.mount())
        volumes.append(tools.volume())
        resources = pod.resource_lists(replace(spec.resources, gpus=0))
        security = deepcopy(main["securityContext"])
        pod_spec["initContainers"] = [tools.init_container(spec.tools_image, resources=resources, security=security)]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": pod.metadata(spec.identity, "workload", name=spec.object_name, namespace=spec.namespace),
        "spec": {
            "replicas": replicas,
            "serviceName": spec.object_name,
            # Parallel: a pod that never becomes ready does not block scaling down.
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": names.selector(spec.identity)},
            "template": {
                "metadata": {"labels": pod_labels, "annotations": {names.DISPLAY_NAME: spec.identity.name}},
                "spec": pod_spec,
            },
        },
    }


def service(spec: InstanceSpec) -> Obj:
    """The Service in front of the pod: port 80 to the container's ``http``."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pod.metadata(spec.identity, "service", name=spec.object_name, namespace=spec.namespace),
        "spec": {
            "type": "ClusterIP",
            "selector": names.selector(spec.identity),
            "ports": [{"name": HTTP, "port": SERVICE_PORT, "targetPort": HTTP, "protocol": "TCP"}],
        },
    }


def route(spec: InstanceSpec) -> Obj:
    """The way from the instance's host to its Service, as the cluster's gateway or its ingress controller reads it.

    Host and path come from the id alone, and annotations are never written, because controllers have turned both into
    configuration (failure F42); the typed name is therefore left out here.
    """
    return ingress(spec) if spec.gateway is None else http_route(spec, spec.gateway)


def _route_metadata(spec: InstanceSpec) -> Obj:
    metadata = pod.metadata(spec.identity, "route", name=spec.object_name, namespace=spec.namespace)
    del metadata["annotations"]
    return metadata


def http_route(spec: InstanceSpec, gateway: GatewayRef) -> Obj:
    """The route as an HTTPRoute (Gateway API), attached to one Gateway."""
    parent: Obj = {"namespace": gateway.namespace, "name": gateway.name}
    if gateway.listener is not None:
        parent["sectionName"] = gateway.listener
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [{"name": spec.object_name, "port": SERVICE_PORT}],
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": _route_metadata(spec),
        "spec": {"parentRefs": [parent], "hostnames": [spec.host], "rules": [rule]},
    }


def ingress(spec: InstanceSpec) -> Obj:
    """The route as an Ingress."""
    backend = {"service": {"name": spec.object_name, "port": {"name": HTTP}}}
    rule = {"host": spec.host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    body: Obj = {"rules": [rule]}
    if spec.ingress_class is not None:
        body["ingressClassName"] = spec.ingress_class
    if spec.tls_secret is not None:
        body["tls"] = [{"hosts": [spec.host], "secretName": spec.tls_secret}]
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": _route_metadata(spec), "spec": body}
