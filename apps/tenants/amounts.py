"""Amounts of resources as people read them, in the active language."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.core import quantities


def label(resource: str) -> str:
    """The resource's word: ``CPU``, ``memory``, ``GPU (a100)`` ..."""
    words = {
        "cpu_millis": _("CPU"),
        "memory_bytes": _("memory"),
        "storage_bytes": _("storage"),
        "volumes": _("volumes"),
        "pods": _("pods"),
    }
    return words.get(resource) or (_("GPU") if resource == "nvidia.com/gpu" else resource)


def of(resource: str, used: int, limit: int) -> str:
    """What is used of what there is, for beside the resource's word."""
    if resource == "cpu_millis":
        texts = (quantities.number(used / 1000, 2), quantities.number(limit / 1000, 2))
    elif resource in ("memory_bytes", "storage_bytes"):
        texts = (quantities.size(used), quantities.size(limit))
    else:
        texts = (str(used), str(limit))
    return _("%(used)s of %(limit)s") % {"used": texts[0], "limit": texts[1]}


def show(resource: str, count: int) -> str:
    """An amount with what it is of: ``2 CPU``, ``4 GiB memory``, ``1 GPU``."""
    if resource == "cpu_millis":
        return quantities.cpus(count)
    if resource == "memory_bytes":
        return _("%(size)s memory") % {"size": quantities.size(count)}
    if resource == "storage_bytes":
        return _("%(size)s storage") % {"size": quantities.size(count)}
    if resource == "volumes":
        return ngettext("%(count)d volume", "%(count)d volumes", count) % {"count": count}
    if resource == "pods":
        return ngettext("%(count)d pod", "%(count)d pods", count) % {"count": count}
    return f"{count} {label(resource)}"
