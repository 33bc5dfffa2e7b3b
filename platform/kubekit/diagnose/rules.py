"""The order of the rules."""

from __future__ import annotations

from collections.abc import Iterator

from kubekit.diagnose.cluster import cluster_away, namespace_gone, quota_exceeded, refused
from kubekit.diagnose.image import image_trouble, other_processor
from kubekit.diagnose.model import Context, Finding, Rule
from kubekit.diagnose.node import no_node, node_lost, node_refused, node_trouble, thrown_out
from kubekit.diagnose.program import bad_command, bad_config, crashed, not_answering, out_of_memory, too_slow
from kubekit.diagnose.volume import volume_full, volume_missing, volume_mount, volume_unbound

RULES: tuple[Rule, ...] = (
    cluster_away, namespace_gone, quota_exceeded, refused,
    node_lost, thrown_out, node_refused,
    volume_missing, volume_unbound, no_node,
    bad_config, image_trouble, volume_mount, node_trouble,
    volume_full, out_of_memory, other_processor, bad_command, crashed, not_answering,
    too_slow,
)  # fmt: skip


def findings(context: Context) -> Iterator[Finding]:
    """Every cause that fits, the most certain first."""
    for rule in RULES:
        found = rule(context)
        if found is not None:
            yield found


def diagnose(context: Context) -> Finding | None:
    """The one cause to show, or None when nothing is wrong (or nothing is known yet)."""
    return next(findings(context), None)
