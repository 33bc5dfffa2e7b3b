"""The end of an instance's log, read when somebody looks: what it prints while it starts and runs, or printed last.

Nothing is stored. Of one that failed the pod is gone, and what it said last is in the evidence of its reason. The key
is never shown, though a program inside may print it: it is replaced, and a line that the limit cut is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from apps.clusters import access
from apps.core.errors import PortalError
from apps.instances.masking import without_key
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from kubekit.build.pod import CONTAINER
from kubekit.errors import BadRequest, KubeError, NotFound

LINES = 300
BYTES = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Tail:
    """``lines``, or ``why`` there are none; ``grows`` while more may come."""

    lines: str = ""
    why: str = ""
    grows: bool = False


def read(instance: Instance) -> Tail:
    """One bounded read of the cluster; what stands in its way is part of the answer."""
    if instance.at_rest:
        return _at_rest(instance)
    try:
        cluster = access.connect(instance.queue.cluster)
        raw = cluster.log_tail(
            instance.queue.namespace, instance.pod_name, CONTAINER, tail_lines=LINES, limit_bytes=BYTES
        )
    except (BadRequest, NotFound):
        return Tail(why=_("The program has not begun yet."), grows=True)
    except (KubeError, PortalError):
        return Tail(why=_("The cluster does not answer, so its log cannot be read now."), grows=True)
    text = without_key(instance, _whole_lines(raw).decode("utf-8", "replace"))
    return Tail(lines=text, why="" if text else _("The log is empty so far."), grows=True)


def is_starting(instance: Instance) -> bool:
    """Whether the page of the instance shows the log by itself: it is on its way up, or did not get there."""
    return instance.state in {InstanceState.QUEUED, InstanceState.STARTING, InstanceState.FAILED}


def _at_rest(instance: Instance) -> Tail:
    if instance.state == InstanceState.FAILED and instance.reason_evidence:
        said = "\n".join(str(line) for line in instance.reason_evidence)
        return Tail(lines=without_key(instance, said), why=_("Its pod is gone. This is what was found at its end:"))
    return Tail(why=_("It does not run; the log is there from the next start on."))


def _whole_lines(raw: bytes) -> bytes:
    """Without the line that the limit cut: half a key would not be recognized."""
    return raw if len(raw) < BYTES else raw[: raw.rfind(b"\n") + 1]
