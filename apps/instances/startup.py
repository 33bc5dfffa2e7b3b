"""How the start-up script of a running instance ended: asked of the instance, as the page stands."""

from __future__ import annotations

from dataclasses import dataclass

from apps.core.errors import PortalError
from apps.instances import imaging, inside
from apps.instances.models import Instance
from apps.instances.states import InstanceState
from kubekit.errors import KubeError

_ASK = "cat /run/mlportal/startup 2>/dev/null || true"
#: What `timeout` answers for a program that it had to end.
TIMED_OUT = frozenset({124, 137})


@dataclass(frozen=True, kw_only=True)
class Ending:
    """``state``: none (there is no script), not_running (the instance), running, ended (with ``code``), unknown."""

    state: str
    code: int | None = None

    @property
    def timed_out(self) -> bool:
        """Whether it took too long."""
        return self.code in TIMED_OUT


def look(instance: Instance) -> Ending:
    """One question to the pod; for threads alone."""
    if not instance.options.get("script"):
        return Ending(state="none")
    if instance.state != InstanceState.RUNNING:
        return Ending(state="not_running")
    try:
        _code, said = inside.ask(instance, imaging.script(instance.image, _ASK))
    except (KubeError, PortalError):
        return Ending(state="unknown")
    return parse(said)


def parse(said: str) -> Ending:
    """What the entrypoint wrote. Pure."""
    text = said.strip()
    if text == "running":
        return Ending(state="running")
    return Ending(state="ended", code=int(text)) if text.isdecimal() and len(text) <= 3 else Ending(state="unknown")
