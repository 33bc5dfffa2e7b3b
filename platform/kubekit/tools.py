"""What an image that was not made for the portal is given: the portal's entrypoint with static programs of its own.

An init container copies them from the tools image (docker/tools) into a volume of the pod, which the image's own
container has at one fixed place. Nothing is asked of that image, so one manifest serves every image; what the
entrypoint finds in it stands in `FOUND` and is read once the instance is ready.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubekit.keyfile import LIVE_PATH

Obj = dict[str, Any]

PATH = "/opt/mlportal"
SHELL = f"{PATH}/bin/sh"
COMMAND = (SHELL, f"{PATH}/entrypoint")
VOLUME = "tools"
INIT = "tools"
FOUND = f"{LIVE_PATH}/entrances"
#: Read with the portal's own programs: the image may have none.
READ = (f"{PATH}/bin/busybox", "cat", FOUND)
#: The tools are 13 MiB.
_ROOM = "64Mi"
_COPIED_TO = "/tools"
_LINE = re.compile(r"(jupyterlab|none|shell|python) ([ -~]{1,300})")
#: Why there is no JupyterLab, as docker/tools/entrypoint and lab.py write it.
WHY = frozenset({"no-python", "old-python", "no-jupyterlab", "old-jupyter", "broken"})


def volume() -> Obj:
    """The pod's volume for them, on the node's disk and gone with the pod."""
    return {"name": VOLUME, "emptyDir": {"sizeLimit": _ROOM}}


def mount() -> Obj:
    """The image's container has them where it cannot change them."""
    return {"name": VOLUME, "mountPath": PATH, "readOnly": True}


def init_container(image: str, *, resources: Obj, security: Obj) -> Obj:
    """Copies them. ``resources`` must not exceed the main container's, whose share the scheduler then counts alone."""
    return {
        "name": INIT,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [f"{PATH}/bin/busybox", "cp", "-RP", f"{PATH}/.", f"{_COPIED_TO}/"],
        "resources": resources,
        "securityContext": security,
        "volumeMounts": [{"name": VOLUME, "mountPath": _COPIED_TO}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def parse_found(text: str) -> Mapping[str, str]:
    """What the entrypoint wrote: ``jupyterlab`` (a version) or ``why`` (one of `WHY`) with ``detail``, and ``shell``.

    Whoever is inside could have written it, so it is read as a claim: known words, printable, short. Empty when it says
    nothing of that kind.
    """
    found: dict[str, str] = {}
    for line in text[:2000].splitlines():
        told = _LINE.fullmatch(line.rstrip())
        if told is None:
            continue
        kind, rest = told.groups()
        if kind == "none":
            why, _, detail = rest.partition(" ")
            if why in WHY:
                found |= {"why": why, **({"detail": detail[:200]} if detail else {})}
        else:
            found[kind] = rest[:200]
    if "jupyterlab" in found:
        found.pop("why", None)
        found.pop("detail", None)
    return found if "jupyterlab" in found or "why" in found else {}
