"""VS Code in the browser: whether this instance has it, and if not, why not and what would change that."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from apps.core.errors import Conflict, PortalError
from apps.instances import entrances, imaging, inside
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from kubekit.errors import KubeError

PATH = "/code-server/"
"""Where JupyterLab serves it, on the instance's host."""
_VERSION = "cat /opt/code-server/version"


@dataclass(frozen=True, kw_only=True)
class Editor:
    """``version`` of what is there, else ``why`` there is none and what to do ``next``."""

    version: str = ""
    why: str = ""
    next: str = ""


def look(instance: Instance) -> Editor:
    """Ask the running instance; an answer of the cluster's own trouble is a reason too."""
    if instance.state != InstanceState.RUNNING:
        return Editor(why=_("It opens when the instance runs."))
    if not entrances.has_lab(instance):
        return Editor(why=_("JupyterLab leads to it, and there is none here."), next=_("Use VS Code over SSH."))
    try:
        code, said = inside.ask(instance, imaging.script(instance.image, _VERSION))
    except (KubeError, PortalError):
        return Editor(why=_("The instance cannot be asked whether it has VS Code."), next=_("Try again in a moment."))
    if code == 0 and said.strip():
        return Editor(version=said.strip()[:40])
    if instance.queue.cluster.embedded:
        return Editor(
            why=_(
                "VS Code is not installed for this instance: it is compiled, so the start of the portal leaves it out."
            ),
            next=_("Run “make code-server” once where the portal runs (some minutes), then restart the instance."),
        )
    return Editor(
        why=_("The image “%(image)s” was built without VS Code.") % {"image": instance.image.name},
        next=_("Ask an administrator to build it with CODE_SERVER set (docs/install.md), or use VS Code over SSH."),
    )


def require(instance: Instance) -> None:
    """Raises ``Conflict`` with the reason when there is no VS Code to open."""
    found = look(instance)
    if not found.version:
        raise Conflict(found.why, code="no_editor", next=found.next)
