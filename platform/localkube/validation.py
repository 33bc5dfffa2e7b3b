"""What makes an object invalid (422), with the real server's texts.

Covers names, labels and the fields that localkube acts on; a real server checks more.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

from localkube import status
from localkube.pods import containers
from localkube.quantity import ZERO, parse
from localkube.resources import Resource
from localkube.status import FieldError, Object

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PATH_NAME: Final = re.compile(r"(?!\.\.?$)[^/%]+")

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_DNS_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LABEL_NAME_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_STS_TEXT: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_POD_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CLAIM_TEXT: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)

Errors = list[FieldError]


def _name_errors(field: str, name: str, pattern: re.Pattern[str], text: str, limit: int) -> Errors:
    errors = []
    if len(name) > limit:
        errors.append(FieldError.invalid(field, name, f"must be no more than {limit} characters"))
    if not pattern.fullmatch(name):
        errors.append(FieldError.invalid(field, name, text))
    return errors


def _metadata(resource: Resource, metadata: Object) -> Errors:
    name = metadata.get("name") or metadata.get("generateName", "").rstrip("-")
    if resource.key == "namespaces" or resource.key == "services":
        errors = _name_errors("metadata.name", name, _DNS_LABEL, _DNS_LABEL_TEXT, 63)
    elif resource.group == "rbac.authorization.k8s.io":
        errors = [] if _PATH_NAME.fullmatch(name) else [FieldError.invalid("metadata.name", name, "may not contain '/'")]
    else:
        errors = _name_errors("metadata.name", name, _SUBDOMAIN, _SUBDOMAIN_TEXT, 253)
    errors += _labels("metadata.labels", metadata.get("labels"))
    for key in metadata.get("annotations") or {}:
        errors += _label_key("metadata.annotations", key.lower())
    size = sum(len(k.encode()) + len(str(v).encode()) for k, v in (metadata.get("annotations") or {}).items())
    if size > 256 * 1024:
        errors.append(FieldError.too_long("metadata.annotations", 262144))
    for finalizer in metadata.get("finalizers") or ():
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(FieldError.invalid("metadata.finalizers", finalizer, text))
    return errors


def _label_key(field: str, key: str) -> Errors:
    prefix, _, name = key.rpartition("/")
    errors = []
    if prefix and not _SUBDOMAIN.fullmatch(prefix):
        errors.append(FieldError.invalid(field, key, f"prefix part {_SUBDOMAIN_TEXT}"))
    if len(name) > 63:
        errors.append(FieldError.invalid(field, key, "name part must be no more than 63 bytes"))
    if not _LABEL_NAME.fullmatch(name):
        errors.append(FieldError.invalid(field, key, _LABEL_NAME_TEXT))
    return errors


def _labels(field: str, labels: Object | None) -> Errors:
    errors = []
    for key, value in (labels or {}).items():
        if not isinstance(value, str):
            raise status.bad_request(f"json: cannot unmarshal {_go_type(value)} into Go struct field {field} of type string")
        if len(value) > 63:
            errors.append(FieldError.invalid(field, value, "must be no more than 63 bytes"))
        if not _LABEL_VALUE.fullmatch(value):
            errors.append(FieldError.invalid(field, value, _LABEL_VALUE_TEXT))
        errors += _label_key(field, key)
    return errors


def _go_type(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", list: "array", dict: "object", type(None): "null"}
    return names.get(type(value), "value")


def _resources(field: str, container: Object) -> Errors:
    errors = []
    section = container.get("resources") or {}
    limits = {name: parse(value) for name, value in (section.get("limits") or {}).items()}
    requests = {name: parse(value) for name, value in (section.get("requests") or {}).items()}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in sorted(amounts.items()):
            where = f"{field}.resources.{part}[{name}]"
            if amount < ZERO:
                errors.append(FieldError.invalid(where, str(amount), "must be greater than or equal to 0"))
            if "/" in name and not amount.whole:
                errors.append(FieldError.invalid(where, str(amount), "must be an integer"))
            if "/" not in name and name not in ("cpu", "memory", "ephemeral-storage") and "hugepages-" not in name:
                text = "must be a standard resource type or fully qualified"
                errors.append(FieldError.invalid(where, name, text))
    for name, amount in sorted(requests.items()):
        limit = limits.get(name)
        where = f"{field}.resources.requests"
        if limit is None and "/" in name:
            text = "Limit must be set for non overcommitable resources"
            errors.append(FieldError.required(f"{field}.resources.limits", text))
        elif limit is not None and "/" in name and amount != limit and amount.whole and limit.whole:
            errors.append(FieldError.invalid(where, str(amount), f"must be equal to {name} limit of {limit}"))
        elif limit is not None and amount > limit:
            text = f"must be less than or equal to {name} limit of {limit}"
            errors.append(FieldError.invalid(where, str(amount), text))
    return errors


def _container(field: str, container: Object, seen: set[str], volumes: set[str]) -> Errors:
    name = container.get("name", "")
    if not name:
        errors = [FieldError.required(f"{field}.name")]
    else:
        errors = _name_errors(f"{field}.name", name, _DNS_LABEL, _DNS_LABEL_TEXT, 63)
    if not container.get("image"):
        errors.append(FieldError.required(f"{field}.image"))
    policy = container.get("imagePullPolicy", "Always")
    if policy not in ("Always", "IfNotPresent", "Never"):
        supported = ("Always", "IfNotPresent", "Never")
        errors.append(FieldError.unsupported(f"{field}.imagePullPolicy", policy, supported))
    if name in seen:
        errors.append(FieldError.duplicate(f"{field}.name", name))
    seen.add(name)
    errors += _resources(field, container)
    for index, port in enumerate(container.get("ports") or ()):
        errors += _port(f"{field}.ports[{index}].containerPort", port.get("containerPort"))
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            errors.append(FieldError.required(f"{field}.env[{index}].name"))
        if variable.get("value") and variable.get("valueFrom"):
            text = "may not be specified when `value` is not empty"
            errors.append(FieldError.invalid(f"{field}.env[{index}].valueFrom", "", text))
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{field}.volumeMounts[{index}]"
        if mount.get("name") not in volumes:
            errors.append(FieldError.missing(f"{where}.name", mount.get("name", "")))
        if not mount.get("mountPath"):
            errors.append(FieldError.required(f"{where}.mountPath"))
        elif mount["mountPath"] in paths:
            errors.append(FieldError.invalid(f"{where}.mountPath", mount["mountPath"], "must be unique"))
        paths.add(mount.get("mountPath", ""))
    return errors


def _port(field: str, port: Any) -> Errors:
    if isinstance(port, int) and 1 <= port <= 65535:
        return []
    return [FieldError.invalid(field, port, "must be between 1 and 65535, inclusive")]


def _pod_spec(field: str, spec: Object, policies: tuple[str, ...] = ("Always", "OnFailure", "Never")) -> Errors:
    errors: Errors = []
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name", "")
        errors += _name_errors(f"{field}.volumes[{index}].name", name, _DNS_LABEL, _DNS_LABEL_TEXT, 63)
        if name in volumes:
            errors.append(FieldError.duplicate(f"{field}.volumes[{index}].name", name))
        if len(volume) > 2:
            text = "may not specify more than 1 volume type"
            errors.append(FieldError.forbidden(f"{field}.volumes[{index}].{sorted(volume)[-1]}", text))
        volumes.add(name)
    if not spec.get("containers"):
        errors.append(FieldError.required(f"{field}.containers"))
    seen: set[str] = set()
    for part in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(part) or ()):
            errors += _container(f"{field}.{part}[{index}]", container, seen, volumes)
    policy = spec.get("restartPolicy")
    if policies == ("Never", "OnFailure") and policy not in policies:
        if policy:
            errors.append(FieldError.unsupported(f"{field}.restartPolicy", policy, policies))
        else:
            errors.append(FieldError.required(f"{field}.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif policy not in policies:
        errors.append(FieldError.unsupported(f"{field}.restartPolicy", policy, policies))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not (isinstance(deadline, int) and 1 <= deadline < 2**31):
        text = "must be between 1 and 2147483647, inclusive"
        errors.append(FieldError.invalid(f"{field}.activeDeadlineSeconds", deadline, text))
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if not isinstance(grace, int) or grace < 0:
        text = "must be greater than or equal to 0"
        errors.append(FieldError.invalid(f"{field}.terminationGracePeriodSeconds", grace, text))
    return errors


def _pod(obj: Object) -> Errors:
    return _pod_spec("spec", obj.get("spec", {}))


def _stateful_set(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        errors.append(FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0"))
    selector = spec.get("selector")
    if not selector:
        errors.append(FieldError.required("spec.selector"))
    template = spec.get("template", {})
    labels = template.get("metadata", {}).get("labels")
    wanted = (selector or {}).get("matchLabels") or {}
    if not selector or any((labels or {}).get(key) != value for key, value in wanted.items()):
        text = "`selector` does not match template `labels`"
        errors.append(FieldError.invalid("spec.template.metadata.labels", labels, text))
    errors += _labels("spec.template.metadata.labels", labels)
    claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or ()}
    pod_spec = template.get("spec", {})
    named = {volume.get("name") for volume in pod_spec.get("volumes") or ()}
    extra = [{"name": name, "emptyDir": {}} for name in sorted(claims - named)]
    checked = pod_spec | {"volumes": [*(pod_spec.get("volumes") or ()), *extra]}
    return errors + _pod_spec("spec.template.spec", checked, ("Always",))


def _job(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        value = spec.get(name)
        if value is not None and (not isinstance(value, int) or value < 0):
            errors.append(FieldError.invalid(f"spec.{name}", value, "must be greater than or equal to 0"))
    return errors + _pod_spec("spec.template.spec", spec["template"]["spec"], ("Never", "OnFailure"))


def _service(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        errors.append(FieldError.required("spec.ports"))
    many = len(spec.get("ports") or ()) > 1
    for index, port in enumerate(spec.get("ports") or ()):
        where = f"spec.ports[{index}]"
        if many and not port.get("name"):
            errors.append(FieldError.required(f"{where}.name"))
        errors += _port(f"{where}.port", port.get("port"))
        if not isinstance(port.get("targetPort"), str):
            errors += _port(f"{where}.targetPort", port.get("targetPort"))
    return errors


def _ingress(obj: Object) -> Errors:
    errors: Errors = []
    spec = obj.get("spec") or {}
    if not spec.get("rules") and not spec.get("defaultBackend"):
        text = "either `defaultBackend` or `rules` must be specified"
        errors.append(FieldError.invalid("spec", "", text))
    for index, rule in enumerate(spec.get("rules") or ()):
        where = f"spec.rules[{index}]"
        if rule.get("host"):
            errors += _name_errors(f"{where}.host", rule["host"].removeprefix("*."), _SUBDOMAIN, _SUBDOMAIN_TEXT, 253)
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            spot = f"{where}.http.paths[{number}]"
            kind = path.get("pathType")
            if not kind:
                errors.append(FieldError.required(f"{spot}.pathType", "pathType must be specified"))
            elif kind not in ("Exact", "Prefix", "ImplementationSpecific"):
                supported = ("Exact", "ImplementationSpecific", "Prefix")
                errors.append(FieldError.unsupported(f"{spot}.pathType", kind, supported))
            elif kind != "ImplementationSpecific" and not path.get("path", "").startswith("/"):
                errors.append(FieldError.invalid(f"{spot}.path", path.get("path", ""), "must be an absolute path"))
            if not path.get("backend", {}).get("service", {}).get("name"):
                errors.append(FieldError.required(f"{spot}.backend", "port name or number is required"))
    return errors


def _claim(obj: Object) -> Errors:
    spec = obj["spec"]
    errors: Errors = []
    modes = spec.get("accessModes")
    if not modes:
        errors.append(FieldError.required("spec.accessModes", "at least 1 access mode is required"))
    supported = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    errors += [FieldError.unsupported("spec.accessModes", mode, supported) for mode in modes or () if mode not in supported]
    amount = (spec.get("resources", {}).get("requests") or {}).get("storage")
    if amount is None:
        errors.append(FieldError.required("spec.resources[storage]"))
    elif parse(amount) <= ZERO:
        errors.append(FieldError.invalid("spec.resources[storage]", amount, "must be greater than zero"))
    return errors


def _quota(obj: Object) -> Errors:
    errors: Errors = []
    standard = ("cpu", "memory", "pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas")
    standard += ("ephemeral-storage", "replicationcontrollers", "services.nodeports", "services.loadbalancers")
    for name, amount in sorted((obj["spec"].get("hard") or {}).items()):
        where = f"spec.hard[{name}]"
        if parse(amount) < ZERO:
            errors.append(FieldError.invalid(where, amount, "must be greater than or equal to 0"))
        if name not in standard and "/" not in name and not name.startswith(("requests.", "limits.")):
            for text in ("must be a standard resource type or fully qualified", "must be a standard resource for quota"):
                errors.append(FieldError.invalid(where, name, text))
    return errors


def _keyed_data(obj: Object) -> Errors:
    errors: Errors = []
    total = 0
    for section in ("data", "binaryData"):
        for key, value in (obj.get(section) or {}).items():
            if not isinstance(value, str):
                kind = obj["kind"]
                text = f"json: cannot unmarshal {_go_type(value)} into Go struct field {kind}.{section} of type string"
                raise status.bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {text}')
            total += len(value)
            if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
                text = (
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
                    "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                )
                errors.append(FieldError.invalid(f"{section}[{key}]", key, text))
    if total > 1024 * 1024 * (4 / 3 if obj["kind"] == "Secret" else 1):
        errors.append(FieldError.too_long("", 1048576))
    return errors


def _secret(obj: Object) -> Errors:
    errors = _keyed_data(obj)
    for value in (obj.get("data") or {}).values():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            text = 'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'
            raise status.bad_request(text) from None
    return errors


def _definition(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    errors: Errors = []
    for name in ("group", "names", "scope", "versions"):
        if not spec.get(name):
            errors.append(FieldError.required(f"spec.{name}"))
    if not errors and obj["metadata"].get("name") != f"{spec['names'].get('plural')}.{spec['group']}":
        text = 'must be spec.names.plural+"."+spec.group'
        errors.append(FieldError.invalid("metadata.name", obj["metadata"].get("name", ""), text))
    return errors


_CREATE: Final[dict[str, Callable[[Object], Errors]]] = {
    "pods": _pod,
    "statefulsets": _stateful_set,
    "jobs": _job,
    "services": _service,
    "ingresses": _ingress,
    "persistentvolumeclaims": _claim,
    "resourcequotas": _quota,
    "configmaps": _keyed_data,
    "secrets": _secret,
    "customresourcedefinitions": _definition,
}


def check(resource: Resource, obj: Object) -> None:
    """Refuse an object that cannot be stored, after its defaults. Raises ApiError 422 (400 for undecodable fields)."""
    metadata = obj["metadata"]
    if not metadata.get("name") and not metadata.get("generateName"):
        errors = [FieldError.required("metadata.name", "name or generateName is required")]
    else:
        errors = _metadata(resource, metadata)
        if rule := _CREATE.get(resource.key):
            try:
                errors += rule(obj)
            except (AttributeError, TypeError, KeyError) as error:
                text = f"cannot be handled as a {resource.kind}: a field has the wrong type ({error})"
                raise status.bad_request(f'{resource.kind} in version "{resource.version}" {text}') from error
    if errors:
        raise status.invalid(resource.group, resource.kind, metadata.get("name", ""), errors)


def _except(spec: Object, *names: str) -> Object:
    return {key: value for key, value in spec.items() if key not in names}


def _pod_update(old: Object, new: Object) -> Errors:
    def frozen(spec: Object) -> Object:
        fixed = _except(spec, "activeDeadlineSeconds", "tolerations", "containers", "initContainers")
        fixed["containers"] = [_except(container, "image") for container in containers(spec)]
        return fixed

    kept = all(toleration in new["spec"].get("tolerations", []) for toleration in old["spec"].get("tolerations", []))
    if frozen(old["spec"]) != frozen(new["spec"]) or not kept:
        return [FieldError.forbidden("spec", _POD_TEXT)]
    return []


def _stateful_set_update(old: Object, new: Object) -> Errors:
    mutable = (
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    )
    if _except(old["spec"], *mutable) != _except(new["spec"], *mutable):
        return [FieldError.forbidden("spec", _STS_TEXT)]
    return []


def _job_update(old: Object, new: Object) -> Errors:
    errors = []
    for name in ("completions", "selector", "template", "completionMode"):
        if old["spec"].get(name) != new["spec"].get(name):
            errors.append(FieldError.invalid(f"spec.{name}", new["spec"].get(name), "field is immutable"))
    return errors


def _claim_update(old: Object, new: Object) -> Errors:
    before, after = old["spec"], new["spec"]
    bound = old.get("status", {}).get("phase") == "Bound"
    adopting = not before.get("volumeName") or "storageClassName" not in before
    free = ("resources", "volumeAttributesClassName") if bound else ()
    free += ("volumeName", "storageClassName") if adopting else ()
    if _except(before, *free) != _except(after, *free):
        return [FieldError.forbidden("spec", _CLAIM_TEXT)]
    old_size, new_size = (parse(spec["resources"]["requests"]["storage"]) for spec in (before, after))
    if new_size < old_size:
        capacity = parse(old.get("status", {}).get("capacity", {}).get("storage", "0"))
        if new_size <= capacity:
            text = "field can not be less than status.capacity"
            return [FieldError.forbidden("spec.resources.requests.storage", text)]
    return []


def _service_update(old: Object, new: Object) -> Errors:
    address = new["spec"].get("clusterIP")
    if old["spec"].get("clusterIP") not in (None, address):
        return [FieldError.invalid("spec.clusterIPs[0]", [address], "may not change once set")]
    return []


def _data_update(old: Object, new: Object) -> Errors:
    if not old.get("immutable"):
        return []
    errors = []
    if not new.get("immutable"):
        text = "field is immutable when `immutable` is set"
        errors.append(FieldError.forbidden("immutable", text))
    for section in ("data", "binaryData"):
        if old.get(section) != new.get(section):
            errors.append(FieldError.forbidden(section, "field is immutable when `immutable` is set"))
    return errors


def _type_update(old: Object, new: Object) -> Errors:
    errors = _data_update(old, new)
    if old.get("type") != new.get("type"):
        errors.append(FieldError.invalid("type", new.get("type", ""), "field is immutable"))
    return errors


_UPDATE: Final[dict[str, Callable[[Object, Object], Errors]]] = {
    "pods": _pod_update,
    "statefulsets": _stateful_set_update,
    "jobs": _job_update,
    "persistentvolumeclaims": _claim_update,
    "services": _service_update,
    "configmaps": _data_update,
    "secrets": _type_update,
}


def check_update(resource: Resource, old: Object, new: Object) -> None:
    """Refuse a change of immutable fields, together with everything `check` refuses. Raises ApiError 422."""
    errors: Errors = []
    try:
        check(resource, new)
    except status.ApiError as error:
        if error.code != 422 or not error.details:
            raise
        errors = [FieldError(c["field"], c["reason"], c["message"]) for c in error.details["causes"]]
    if rule := _UPDATE.get(resource.key):
        errors += rule(old, new)
    if old["metadata"].get("deletionTimestamp"):
        added = sorted(set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            text = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
            errors.append(FieldError.forbidden("metadata.finalizers", text))
    if errors:
        raise status.invalid(resource.group, resource.kind, new["metadata"].get("name", ""), errors)

