"""Specifications of what runs: dev instances and task pods."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubekit import names

from .checks import HOST_AND_PORT, ORIGIN, check_env, check_image, frozen, require, require_name
from .common import GatewayRef, Identity, Mount, Placement, Resources, check_mounts


@dataclass(frozen=True, kw_only=True)
class InstanceSpec:
    """A dev instance: one StatefulSet of 0 or 1 pods with a Secret, a Service and a route.

    ``mounts`` holds the home (a claim at /root) and chosen volumes. ``public_host`` is what a browser types
    (``host[:port]``) and ``host`` the same without the port, for the route: an HTTPRoute of ``gateway`` where one is
    named, else an Ingress of ``ingress_class``; none at all where it is not ``routed``, because one route leads all
    hosts to the portal's own gateway. The key itself is not here: it goes to
    `kubekit.build.instance.secret`, so that a spec can be logged. ``named_after`` is the name that its objects are made
    of where that is no longer the one which the person reads. With a ``tools_image`` the portal's own entrypoint is put
    beside ``image`` and run in place of its own (`kubekit.tools`).
    """

    identity: Identity
    namespace: str
    image: str
    resources: Resources
    host: str
    public_host: str
    portal_origin: str
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 8888
    ready_path: str = "/portal/ready"
    ingress_class: str | None = None
    gateway: GatewayRef | None = None
    routed: bool = True
    tls_secret: str | None = None
    placement: Placement = field(default_factory=Placement)
    image_pull_policy: str = "IfNotPresent"
    tools_image: str | None = None
    grace_s: int = 30
    named_after: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", frozen(self.env))
        require_name(self.namespace, "namespace")
        check_image(self.image, self.image_pull_policy)
        if self.tools_image is not None:
            check_image(self.tools_image, self.image_pull_policy)
        check_env(self.env)
        check_mounts(self.mounts)
        require(names.is_dns_name(self.host), "bad_host", "host", f"{self.host!r} is not a host name")
        require(HOST_AND_PORT.fullmatch(self.public_host) is not None, "bad_host", "public_host", "not host[:port]")
        require(
            ORIGIN.fullmatch(self.portal_origin) is not None, "bad_origin", "portal_origin", "not scheme://host[:port]"
        )
        require(1 <= self.port <= 65535, "bad_port", "port", "must be 1-65535")
        require(re.fullmatch(r"/[-a-zA-Z0-9._/]*", self.ready_path) is not None, "bad_path", "ready_path", "not a path")
        require(0 <= self.grace_s <= 3600, "bad_grace", "grace_s", "must be 0-3600 seconds")
        for value, where in ((self.ingress_class, "ingress_class"), (self.tls_secret, "tls_secret")):
            require(value is None or names.is_dns_name(value), "bad_name", where, f"{value!r} is not a name")

    @property
    def route_kind(self) -> str:
        """The kind of the object that leads to it from outside; empty where it needs none."""
        if not self.routed:
            return ""
        return "Ingress" if self.gateway is None else "HTTPRoute"

    @property
    def object_name(self) -> str:
        """Name of the StatefulSet, Service, route and Secret."""
        return names.instance_name(self.named_after or self.identity.name, self.identity.id)

    @property
    def pod_name(self) -> str:
        """Name of the one pod, when it runs."""
        return f"{self.object_name}-0"


@dataclass(frozen=True, kw_only=True)
class TaskPodSpec:
    """One attempt of a task: a bare pod that is created once and never restarted.

    ``identity.kind`` is ``attempt``, ``identity.id`` the attempt row and ``identity.attempt`` its number (from 1).
    ``deadline_s`` is the cluster's own backstop, counted from the pod's start; ``scheduled_at`` the instant the run
    stands for, ISO 8601 in UTC.
    """

    identity: Identity
    namespace: str
    flow: str
    node: str
    run_id: str
    image: str
    resources: Resources
    scheduled_at: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    deadline_s: int | None = None
    grace_s: int = 30
    working_dir: str | None = None
    placement: Placement = field(default_factory=Placement)
    image_pull_policy: str = "IfNotPresent"

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", frozen(self.env))
        require_name(self.namespace, "namespace")
        require(self.identity.attempt is not None, "attempt_missing", "identity", "an attempt's number is needed")
        check_image(self.image, self.image_pull_policy)
        check_env(self.env)
        check_mounts(self.mounts)
        require(bool(self.scheduled_at), "scheduled_at_missing", "scheduled_at", "must not be empty")
        require(
            self.deadline_s is None or self.deadline_s >= 1, "bad_deadline", "deadline_s", "must be at least 1 second"
        )
        require(0 <= self.grace_s <= 3600, "bad_grace", "grace_s", "must be 0-3600 seconds")
        for part in (*self.command, *self.args):
            require("\0" not in part, "bad_command", "command", "contains a NUL character")
        directory = self.working_dir
        require(
            directory is None or (directory.startswith("/") and posixpath.normpath(directory) == directory),
            "bad_path",
            "working_dir",
            f"{directory!r} is not a plain absolute path",
        )

    @property
    def object_name(self) -> str:
        """Name of the pod."""
        number = self.identity.attempt or 0
        return names.attempt_pod_name(self.flow, self.run_id, self.node, number, self.identity.id)
