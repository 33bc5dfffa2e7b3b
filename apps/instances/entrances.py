"""Which entrances an image turned out to give, that was not made for the portal: asked once of each launch.

SSH is always there, since the portal brings it. JupyterLab, and with it VS Code in the browser, is there when the image
or the home has it; the entrypoint says so in a file (`kubekit.tools`), which is read when the instance has come up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from django.utils.translation import gettext as _

from apps.core.errors import Conflict, PortalError
from apps.instances import inside
from apps.instances.decide import Decision
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from kubekit import tools
from kubekit.errors import KubeError

#: Until it is asked again when it could not be asked.
AGAIN_S = 10.0
UNKNOWN = "unknown"
Found = Mapping[str, str]


def is_owed(instance: Instance) -> bool:
    """Whether a running instance has still to be asked."""
    return not instance.image.prepared and not instance.entrances


def advance(instance: Instance) -> Found | None:
    """Ask; None when there is nothing to ask, empty when it could not be asked."""
    if instance.state != InstanceState.RUNNING or not is_owed(instance):
        return None
    try:
        _code, said = inside.ask(instance, tools.READ)
    except (KubeError, PortalError):
        return {}
    return tools.parse_found(said) or {"why": UNKNOWN}


def applied(instance: Instance, found: Found | None, decision: Decision) -> Decision:
    """The decision with what was found out. Pure."""
    if decision.to != InstanceState.RUNNING or not is_owed(instance):
        return decision
    if found:
        return replace(decision, values={**decision.values, "entrances": dict(found)})
    return replace(decision, again_s=min(AGAIN_S, decision.again_s or AGAIN_S))


def has_lab(instance: Instance) -> bool | None:
    """Whether there is JupyterLab; None while nobody knows."""
    if instance.image.prepared:
        return True
    return "jupyterlab" in instance.entrances if instance.entrances else None


def sentence(instance: Instance) -> str:
    """Why there is no JupyterLab, and what to do; empty where there is one."""
    there = has_lab(instance)
    if there:
        return ""
    if there is None:
        return _("What this image has is found out when the instance has come up.")
    detail = {"detail": str(instance.entrances.get("detail", ""))}
    said = {
        "no-python": _("The image has no Python, so there is no JupyterLab and no VS Code in the browser."),
        "old-python": _("The Python of the image (%(detail)s) is older than 3.9, which JupyterLab needs.") % detail,
        "no-jupyterlab": _(
            "The Python of the image (%(detail)s) has no JupyterLab: install it into your home (pip install --user "
            "jupyterlab) and restart the instance."
        )
        % detail,
        "old-jupyter": _("The jupyter-server of the image (%(detail)s) is older than 2.13, which the portal needs.")
        % detail,
        "broken": _("The JupyterLab of the image cannot be started: %(detail)s") % detail,
    }
    return said.get(str(instance.entrances.get("why")), _("What this image has could not be read."))


def require_lab(instance: Instance) -> None:
    """Raises ``Conflict`` when there is no JupyterLab to open."""
    if not has_lab(instance):
        raise Conflict(sentence(instance), code="no_jupyterlab", next=_("Use SSH."))
