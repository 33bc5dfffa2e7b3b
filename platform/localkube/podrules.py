"""What makes a pod's spec invalid, in a pod or in a template."""

from __future__ import annotations

from localkube.naming import DNS_LABEL, DNS_LABEL_TEXT, Errors, name_errors, port_errors
from localkube.quantity import ZERO, parse
from localkube.status import FieldError, Object


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
        errors = name_errors(f"{field}.name", name, DNS_LABEL, DNS_LABEL_TEXT, 63)
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
        errors += port_errors(f"{field}.ports[{index}].containerPort", port.get("containerPort"))
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            errors.append(FieldError.required(f"{field}.env[{index}].name"))
        if not isinstance(variable.get("value", ""), str):
            errors.append(FieldError.invalid(f"{field}.env[{index}].value", variable["value"], "must be a string"))
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


def pod_spec_errors(field: str, spec: Object, policies: tuple[str, ...] = ("Always", "OnFailure", "Never")) -> Errors:
    errors: Errors = []
    volumes: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = volume.get("name", "")
        errors += name_errors(f"{field}.volumes[{index}].name", name, DNS_LABEL, DNS_LABEL_TEXT, 63)
        if name in volumes:
            errors.append(FieldError.duplicate(f"{field}.volumes[{index}].name", name))
        if len(volume) > 2:
            text = "may not specify more than 1 volume type"
            errors.append(FieldError.forbidden(f"{field}.volumes[{index}].{sorted(volume)[-1]}", text))
        volumes.add(name)
    if not spec.get("containers"):
        errors.append(FieldError.required(f"{field}.containers"))
    seen: set[str] = set()
    for index, container in enumerate(spec.get("containers") or ()):
        errors += _container(f"{field}.containers[{index}]", container, seen, volumes)
    policy = spec.get("restartPolicy")
    if policies == ("Never", "OnFailure") and policy not in policies:
        if policy not in (None, "", "Always"):
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
