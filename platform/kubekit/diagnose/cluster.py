"""Causes in the cluster itself and in what it refused."""

from __future__ import annotations

from kubekit.diagnose.model import Context, Finding, error_text
from kubekit.errors import (
    Forbidden,
    Invalid,
    NamespaceTerminating,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
    Unauthorized,
    Unreachable,
    quota_from_message,
)


def cluster_away(context: Context) -> Finding | None:
    error = context.error
    if isinstance(error, Unauthorized):
        return Finding(code="cluster_unauthorized", evidence=(error.message,), next="ask_admin")
    if isinstance(error, Unreachable):
        return Finding(code="cluster_unreachable", evidence=(error.message,), next="wait_or_tell_admin")
    if context.cluster_silent_s > context.cluster_silent_after_s:
        return Finding(
            code="cluster_unreachable", params={"silent_s": int(context.cluster_silent_s)}, next="wait_or_tell_admin"
        )
    return None


def namespace_gone(context: Context) -> Finding | None:
    error = context.error
    if context.namespace_terminating or isinstance(error, NamespaceTerminating):
        return Finding(code="namespace_terminating", evidence=error_text(error), next="choose_other_queue")
    if isinstance(error, NotFound) and error.details.get("kind") == "namespaces":
        return Finding(code="namespace_missing", evidence=error_text(error), next="choose_other_queue")
    return None


def quota_exceeded(context: Context) -> Finding | None:
    quota = context.error if isinstance(context.error, QuotaExceeded) else None
    if quota is None:
        quota = quota_from_message(context.pod_refused())
    if quota is None:
        return None
    rows = [
        {"resource": name, "requested": asked, "used": quota.used.get(name, ""), "limited": quota.limited.get(name, "")}
        for name, asked in quota.requested.items()
    ]
    return Finding(
        code="quota_exceeded",
        params={"quota": quota.quota, "resources": rows},
        evidence=(quota.message,),
        next="free_quota",
    )


def refused(context: Context) -> Finding | None:
    error = context.error
    text = error.message if error is not None else context.pod_refused()
    if not text:
        return None
    if isinstance(error, PermissionDenied):
        params = {"verb": error.verb, "resource": error.resource}
        return Finding(code="permission_missing", params=params, evidence=(text,), next="ask_admin")
    if "violates PodSecurity" in text or "denied the request" in text or "admission webhook" in text:
        return Finding(code="forbidden_by_policy", evidence=(text,), next="ask_admin")
    if isinstance(error, Forbidden) or " is forbidden: " in text:
        return Finding(code="forbidden_by_policy", evidence=(text,), next="ask_admin")
    if isinstance(error, Invalid):
        fields = [cause.field for cause in error.causes]
        return Finding(code="invalid_spec", params={"fields": fields}, evidence=(text,), next="change_settings")
    return None
