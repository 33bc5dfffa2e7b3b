"""Why something in a cluster does not run, in sentences: one wording for each code of ``kubekit.diagnose``.

Dev instances and task runs share them. ``reason_of`` turns a finding into the ``Reason`` that a row stores:
parameters become text there, once, in a form that fits every language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _

from apps.core.reasons import Reason, Wording
from kubekit.diagnose import Finding
from kubekit.quantities import format_bytes

_ASK_ADMIN = _("Tell an administrator; the evidence says what the cluster answered.")

WORDINGS: Mapping[str, Wording] = {
    # the cluster
    "cluster_unreachable": Wording(
        sentence=_("The cluster does not answer."),
        next=_("Nothing was stopped. The portal tries again by itself; tell an administrator if it lasts."),
        tone="waiting",
    ),
    "cluster_unauthorized": Wording(
        sentence=_("The cluster no longer accepts the portal's credentials."),
        next=_("Tell an administrator: the cluster needs new credentials in the portal."),
    ),
    "namespace_terminating": Wording(
        sentence=_("The queue's namespace is being deleted, so nothing new can start in it."),
        next=_("Choose another queue."),
    ),
    "namespace_missing": Wording(
        sentence=_("The queue's namespace does not exist in the cluster."),
        next=_("Choose another queue, or tell an administrator."),
    ),
    # room
    "quota_exceeded": Wording(
        sentence=_("The quota of the queue's namespace leaves no room: {resources}."),
        next=_("It starts as soon as something else in the queue ends. Stop what is not needed."),
        tone="waiting",
    ),
    "no_node_gpu": Wording(
        sentence=_("No node has enough free GPUs ({resource})."),
        next=_("It starts as soon as some are free. Choose a size with fewer GPUs to start sooner."),
        tone="waiting",
    ),
    "no_node_memory": Wording(
        sentence=_("No node has enough free memory."),
        next=_("It starts as soon as some is free. Choose a smaller size to start sooner."),
        tone="waiting",
    ),
    "no_node_cpu": Wording(
        sentence=_("No node has enough free CPU."),
        next=_("It starts as soon as some is free. Choose a smaller size to start sooner."),
        tone="waiting",
    ),
    "no_node_pods": Wording(
        sentence=_("Every node runs as many pods as it may."),
        next=_("It starts as soon as something else ends; tell an administrator if it lasts."),
        tone="waiting",
    ),
    "no_node_fits": Wording(
        sentence=_("No node can take it now."),
        next=_("It starts as soon as a node can; tell an administrator if it lasts."),
        tone="waiting",
    ),
    "placement_mismatch": Wording(
        sentence=_("No node may run it: every one is reserved for something else."),
        next=_ASK_ADMIN,
    ),
    # the node
    "node_lost": Wording(
        sentence=_("The node {node} has stopped answering, so nobody knows whether it still runs."),
        next=_("It is not started elsewhere meanwhile, so that two never write to one volume. Tell an administrator."),
        tone="waiting",
    ),
    "node_refused": Wording(
        sentence=_("The node did not take it ({reason})."),
        next=_("Start it again."),
        action="start",
    ),
    "node_trouble": Wording(
        sentence=_("The node {node} cannot prepare it."),
        next=_("The cluster tries again; tell an administrator if it lasts."),
        tone="waiting",
    ),
    "evicted": Wording(
        sentence=_("The node {node} ran short of {resource} and threw it out."),
        next=_("Start it again. A larger size is thrown out later than a smaller one."),
        action="start",
    ),
    "disk_limit": Wording(
        sentence=_("It wrote more outside its volumes than a node allows."),
        next=_("Write large files to a volume, for example below /root."),
        action="start",
    ),
    "preempted": Wording(
        sentence=_("It had to make room for something of a higher priority."),
        next=_("It starts again as soon as there is room."),
        tone="waiting",
    ),
    "deadline_exceeded": Wording(
        sentence=_("It ran longer than allowed and was ended."),
        next=_("Allow more time, or make it faster."),
    ),
    # volumes
    "volume_missing": Wording(
        sentence=_("A volume that it mounts does not exist in the cluster: {claims}."),
        next=_("Choose another volume, or wait if it was only just made."),
    ),
    "volume_lost": Wording(
        sentence=_("The storage behind a volume is gone: {claims}."),
        next=_ASK_ADMIN,
    ),
    "volume_not_bound": Wording(
        sentence=_("A volume has no storage behind it yet: {claims}."),
        next=_("The cluster keeps trying; tell an administrator if it lasts."),
        tone="waiting",
    ),
    "volume_busy": Wording(
        sentence=_("A volume is still in use on another node."),
        next=_("Stop what uses it, or wait until it has ended."),
        tone="waiting",
    ),
    "volume_mount_failed": Wording(
        sentence=_("A volume could not be mounted."),
        next=_("The cluster tries again; tell an administrator if it lasts."),
        tone="waiting",
    ),
    "volume_full": Wording(
        sentence=_("A volume is full, so the program could not write to it."),
        next=_("Delete files on it or make it larger, then start again."),
        action="start",
    ),
    "shared_memory_full": Wording(
        sentence=_("Shared memory (/dev/shm) is full, so the program could not go on."),
        next=_("Use fewer worker processes or smaller batches, or choose a size with more memory."),
    ),
    # the image
    "image_not_found": Wording(
        sentence=_("The image “{image}” was not found."),
        next=_("Check the tag, or choose another image."),
    ),
    "image_denied": Wording(
        sentence=_("The registry does not let the cluster have the image “{image}”."),
        next=_("Tell an administrator: the image's registry needs credentials."),
    ),
    "image_architecture": Wording(
        sentence=_("The image “{image}” is for another kind of processor than the node."),
        next=_("Choose an image for this kind of processor, or one for several kinds."),
    ),
    "image_name_invalid": Wording(
        sentence=_("“{image}” is not the name of an image."),
        next=_("Tell an administrator: the catalogue's entry needs another reference."),
    ),
    "image_pull_failed": Wording(
        sentence=_("The image “{image}” could not be brought to the node."),
        next=_("Check the tag, or choose another image."),
    ),
    "registry_unreachable": Wording(
        sentence=_("The registry of the image “{image}” does not answer."),
        next=_("The cluster tries again; tell an administrator if it lasts, or choose another image."),
        tone="waiting",
    ),
    # the program
    "out_of_memory": Wording(
        sentence=_("It used more memory than its size allows ({memory}) and was killed."),
        next=_("Choose a larger size, or use less memory."),
    ),
    "crashed_at_start": Wording(
        sentence=_("The program ended right after its start (exit code {exit_code}, restarts: {restarts})."),
        next=_("The log says why. Mend it, then start again."),
        action="start",
    ),
    "crashed": Wording(
        sentence=_("The program ended (exit code {exit_code}, restarts: {restarts})."),
        next=_("The log says why. Mend it, then start again."),
        action="start",
    ),
    "command_not_found": Wording(
        sentence=_("The command does not exist in the image."),
        next=_("Correct the command, or choose an image that has it."),
    ),
    "config_missing": Wording(
        sentence=_("Something that it needs at its start is missing in the cluster: {kind} {name}."),
        next=_("Start it again: the portal makes it anew."),
        action="start",
    ),
    "config_error": Wording(
        sentence=_("The node cannot make the container from its description."),
        next=_ASK_ADMIN,
    ),
    "not_answering": Wording(
        sentence=_("It runs but does not answer yet."),
        next=_("The log says what it is doing."),
        tone="waiting",
    ),
    "start_timeout": Wording(
        sentence=_("It did not start within {timeout_s} seconds."),
        next=_("The events and the log say how far it came. Start it again."),
        action="start",
    ),
    # what the cluster refuses
    "permission_missing": Wording(
        sentence=_("The portal's account in the cluster may not {verb} {resource} any more."),
        next=_("What runs goes on. Tell an administrator: the cluster's check names the command that grants it."),
        tone="waiting",
    ),
    "forbidden_by_policy": Wording(
        sentence=_("A rule of the cluster forbids it."),
        next=_ASK_ADMIN,
    ),
    "invalid_spec": Wording(
        sentence=_("The cluster does not accept its description ({fields})."),
        next=_("Change the settings named, or tell an administrator."),
    ),
}


def reason_of(finding: Finding, **more: Any) -> Reason:
    """The finding as a row stores it; ``more`` adds or replaces parameters of the sentence."""
    params = {name: _text(value) for name, value in finding.params.items()}
    if finding.params.get("memory_bytes"):
        params["memory"] = format_bytes(finding.params["memory_bytes"])
    return Reason(code=finding.code, params={**params, **more}, evidence=finding.evidence)


def _text(value: Any) -> str | int | float:
    """A parameter as JSON and a sentence can have it: lists in a row, quota figures as ``2 of 4 used, 3 asked``."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value)
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        if "requested" in value and "limited" in value:
            return f"{value['resource']} {value['requested']} + {value['used']} > {value['limited']}"
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, Iterable):
        return "; ".join(str(_text(inner)) for inner in value)
    return str(value)
