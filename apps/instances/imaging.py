"""What of an image decides how its pod is written: whose entrypoint, which nodes, how it is fetched."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django.conf import settings

from apps.catalog.models import Image
from apps.clusters.models import Cluster
from kubekit import tools

ARCHITECTURE = "kubernetes.io/arch"
#: From this version on a node gives an image that it has to nobody who could not fetch it (KEP-2535).
_VERIFIES = (1, 35)
_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")


def tools_image(image: Image) -> str | None:
    """What is put beside an image that was not made for the portal; None for one that was."""
    return None if image.prepared else str(settings.PORTAL_TOOLS_IMAGE)


def shell(image: Image) -> str:
    """What reads the portal's own short scripts inside: an image that was not made for it may have no shell."""
    return "/bin/sh" if image.prepared else tools.SHELL


def script(image: Image, text: str) -> tuple[str, ...]:
    """A short script of the portal's as a command inside, with its own programs where the image has none."""
    own = f'PATH="$PATH:{tools.PATH}/busybox"; '
    return (shell(image), "-c", text if image.prepared else own + text)


def node_selector(image: Image, cluster: Cluster) -> Mapping[str, str]:
    """An image for one kind of processor goes to nodes of that kind. The embedded cluster runs programs, no images."""
    return {ARCHITECTURE: image.architecture} if image.architecture and not cluster.embedded else {}


def pull_policy(image: Image, cluster: Cluster) -> str:
    """Images of the catalogue are everybody's. One that somebody named may be private to others and lie on the node all
    the same, so that the registry is asked each time, unless the node itself remembers who may have it."""
    if image.team_id is None:
        return "IfNotPresent"
    told = _VERSION.match(cluster.version)
    return "IfNotPresent" if told and (int(told[1]), int(told[2])) >= _VERIFIES else "Always"
