"""The lines of a check in the reader's language: what was looked at, what was found, what mends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy as _

_SETTINGS = _("Choose one in the cluster's settings, or make one the default.")
_NO_PLUGIN = _(
    "Install a network plugin that enforces NetworkPolicy, or a controller that does it beside the present one."
)

TOPICS: Mapping[str, Any] = {
    "answer": _("The cluster answers"),
    "version": _("Kubernetes version"),
    "login": _("Credentials"),
    "permission": _("May {verbs} {what}"),
    "storage_class": _("Storage class for volumes"),
    "storage": _("Storage class {name}, tried"),
    "ingress": _("Ingress class"),
    "gateway": _("Gateway API"),
    "gateway_parent": _("Gateway {gateway}"),
    "gateway_listener": _("Its listener for instances"),
    "metrics": _("Metrics of nodes"),
    "gpu": _("GPUs"),
    "priority": _("Priority classes"),
    "probes": _("Pods for trying things out"),
    "clock": _("Clocks"),
    "pod_security": _("Pod Security, tried"),
    "user_namespaces": _("User namespaces, tried"),
    "network": _("Network policies, tried by pods"),
}

FOUND: Mapping[str, tuple[Any, Any]] = {
    "silent": (_("It does not."), _("Mend what the evidence says, then check again.")),
    "not_told": (_("The cluster does not tell."), _("Mend what the evidence says.")),
    "version_good": ("{version}", ""),
    "version_too_old": (
        _("{version} is too old: the portal needs {oldest} or later, so it writes nothing to this cluster."),
        _("Upgrade the cluster."),
    ),
    "version_unreadable": (_("{version} is not a version that the portal can read."), ""),
    "login_lasting": (_("They do not end by themselves."), ""),
    "login_until": (_("They end on {end}, in {days} days."), ""),
    "login_soon": (
        _("They end on {end}, in {days} days: then the portal is shut out."),
        _("Give new credentials on the cluster's page. A token that lasts longer:"),
    ),
    "permission_good": (_("allowed"), ""),
    "permission_missing": (_("not allowed: {missing}"), ""),
    "permission_optional": (_("not allowed: {missing}. Only this check knows less for it."), ""),
    "permission_unused": (_("not allowed: {missing}. Not needed as instances are reached on this cluster."), ""),
    "storage_class_good": (_("{name} (there are: {names})"), ""),
    "storage_class_none": (
        _("There is no storage class, so no volume can be made."),
        _("Install a storage driver of the cluster's platform."),
    ),
    "storage_class_not_there": (_("The chosen class {name} does not exist (there are: {names})."), _SETTINGS),
    "storage_class_no_default": (_("None of {names} is the default, and none is chosen."), _SETTINGS),
    "storage_good": (_("A volume came for each of {modes}."), ""),
    "storage_partly": (
        _("A volume came for {modes}, none for {without}: volumes of this class cannot be shared between nodes."),
        "",
    ),
    "storage_fails": (
        _("No volume came for {without} within the time."),
        _("Look at what the class's driver says."),
    ),
    "storage_not_tried": (_("Not tried: this class keeps what is given back, so a volume would be left behind."), ""),
    "ingress_good": (_("{name} (there are: {names})"), ""),
    "ingress_none": (
        _("There is no ingress class, so nobody reaches an instance."),
        _("Install an ingress controller, for example Traefik."),
    ),
    "ingress_not_there": (_("The chosen class {name} does not exist (there are: {names})."), _SETTINGS),
    "ingress_no_default": (_("None of {names} is the default, and none is chosen."), _SETTINGS),
    "gateway_good": (_("Version 1, answered by {names}."), ""),
    "gateway_none": (_("The cluster does not serve version 1 of it."), ""),
    "gateway_no_controller": (
        _("It is served, but no controller has accepted a gateway class."),
        _("Install a controller that implements it, for example Traefik or Envoy Gateway."),
    ),
    "gateway_parent_good": (_("There, and a controller answers for it. Addresses: {addresses}."), ""),
    "gateway_parent_absent": (
        _("It is not there, so nobody reaches an instance."),
        _("Choose another in the cluster's settings, or make it, with a certificate of your own for HTTPS:"),
    ),
    "gateway_parent_ignored": (
        _("It is there, but no controller has taken it up."),
        _("Is the controller of its gateway class running?"),
    ),
    "gateway_parent_refused": (
        _("It is there, but its controller does not serve it."),
        _("Mend what the evidence says."),
    ),
    "gateway_listener_good": (_("{listeners}: takes the queues' routes for {hosts}."), ""),
    "gateway_listener_absent": (
        _("The Gateway has no listener {listener} (there are: {listeners})."),
        _("Choose another in the cluster's settings, or add it:"),
    ),
    "gateway_listener_kind": (
        _("None that may be used speaks HTTP or HTTPS and takes HTTPRoutes (there are: {listeners})."),
        _("Choose another listener in the cluster's settings, or add one."),
    ),
    "gateway_listener_hosts": (
        _("None that may be used is for {hosts} (there are: {listeners})."),
        _("Choose another listener in the cluster's settings, or add one."),
    ),
    "gateway_listener_namespaces": (
        _("None that may be used takes routes from the namespaces of queues (there are: {listeners})."),
        _("Let in what the portal has made:"),
    ),
    "metrics_good": (_("for {count} of {nodes} nodes"), ""),
    "metrics_none": (_("Nothing measures what pods use."), ""),
    "metrics_empty": (_("They are served, but hold no node yet."), ""),
    "metrics_silent": (_("What serves them does not answer."), ""),
    "gpu_model": (_("{count} × {model} as {resource} on {nodes} nodes"), ""),
    "gpu_unnamed": (_("{count} × {resource} on {nodes} nodes, which do not name the model"), ""),
    "gpu_none": (_("none"), ""),
    "gpu_no_plugin": (
        _("{count} nodes have a card that the cluster does not offer: {nodes}."),
        _("Install the device plugin."),
    ),
    "gpu_open": (
        _("{count} nodes with {resource} take pods that ask for none: {nodes}."),
        _("A taint keeps the cards free for those who need them; the portal's pods with GPUs tolerate it."),
    ),
    "priority_some": ("{names}", ""),
    "priority_none": (_("none but the cluster's own"), ""),
    "probes_no_image": (
        _("The catalogue has no image for tasks, so no pod can try anything."),
        _("Put one with Python into the catalogue, then check again."),
    ),
    "probes_refused": (_("The cluster does not let the portal make a namespace, so nothing was tried."), ""),
    "clock_good": (_("The cluster's and the portal's agree."), ""),
    "clock_unreadable": (_("The cluster's stamps cannot be read."), ""),
    "clock_ahead": (
        _("The cluster's clock is {seconds} s ahead of the portal's: times shown and time-outs are off by as much."),
        _("Let both machines set their clock from the network."),
    ),
    "clock_behind": (
        _("The cluster's clock is {seconds} s behind the portal's: times shown and time-outs are off by as much."),
        _("Let both machines set their clock from the network."),
    ),
    "pod_security_good": (_("A privileged pod is refused at the level {level}, which queues' namespaces get."), ""),
    "pod_security_ignored": (
        _("A privileged pod is let in at the level {level}: the label on queues' namespaces does nothing here."),
        _("Switch the admission plugin on in the API server."),
    ),
    "pod_security_other": (_("A privileged pod is refused, but not by the level {level}."), ""),
    "user_namespaces_good": (_("A pod's user ids are mapped to others on the node."), ""),
    "user_namespaces_unused": (
        _("They work here; the portal does not use them on this cluster."),
        _("Switch them on in the cluster's settings: root in a pod is then nobody on the node."),
    ),
    "user_namespaces_ignored": (
        _("The node ran the pod without one: root in a pod would be root on the node."),
        _("Needs Kubernetes 1.33, containerd 2 or CRI-O, and Linux 6.3 or later on every node."),
    ),
    "user_namespaces_fails": (
        _("A pod that asks for one does not run."),
        _("Needs Kubernetes 1.33, containerd 2 or CRI-O, and Linux 6.3 or later on every node."),
    ),
    "network_enforced": (
        _("Enforced: two pods met, under a policy neither reached the other ({seconds} s), without it they met again."),
        "",
    ),
    "network_stored": (
        _("Stored only: under a policy that denies all, both pods still reached each other."),
        _NO_PLUGIN,
    ),
    "network_only_into": (
        _("Half enforced: under a policy that denies all, nothing got into the pod, but it still got out."),
        _NO_PLUGIN,
    ),
    "network_only_out": (
        _("Half enforced: under a policy that denies all, the pod did not get out, but others still got in."),
        _NO_PLUGIN,
    ),
    "network_no_pods": (_("Could not tell: the pods that try it did not run."), _("Mend what the evidence says.")),
    "network_no_path": (_("Could not tell: two pods do not reach each other here, policy or not."), ""),
    "network_unclear": (
        _("Could not tell: what the two pods saw does not fit together."),
        _("Check again; if it stays so, look at the network plugin."),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A line as people read it. ``command`` is to be copied; ``result`` as in ``kubekit.checkup.Line``."""

    what: str
    result: str
    code: str
    detail: str
    fix: str
    command: str
    evidence: tuple[str, ...]


def shown(line: Mapping[str, Any]) -> Shown:
    """A stored line in the active language."""
    params = line["params"]
    detail, fix = FOUND[line["code"]]
    return Shown(
        what=str(TOPICS[line["topic"]]).format_map(params),
        result=line["result"],
        code=line["code"],
        detail=str(detail).format_map(params),
        fix=str(fix).format_map(params),
        command=line["command"],
        evidence=tuple(line["evidence"]),
    )


def all_shown(lines: Iterable[Mapping[str, Any]]) -> list[Shown]:
    """Every stored line."""
    return [shown(line) for line in lines]
