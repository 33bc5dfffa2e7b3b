"""Amounts of resources as people read them, in the active language."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def cpu(millis: int) -> str:
    """1500 -> ``1.5 CPU``."""
    return f"{_plain(millis / 1000, digits=3)} CPU"


def size(count: int) -> str:
    """Bytes in the largest unit that keeps the number at 1 or more."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{_plain(value, digits=1)} {_UNITS[unit]}"


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


def show(resource: str, count: int) -> str:
    """An amount with what it is of: ``2 CPU``, ``4 GiB memory``, ``1 GPU``."""
    if resource == "cpu_millis":
        return cpu(count)
    if resource == "memory_bytes":
        return _("%(size)s memory") % {"size": size(count)}
    if resource == "storage_bytes":
        return _("%(size)s storage") % {"size": size(count)}
    if resource == "volumes":
        return ngettext("%(count)d volume", "%(count)d volumes", count) % {"count": count}
    if resource == "pods":
        return ngettext("%(count)d pod", "%(count)d pods", count) % {"count": count}
    return f"{count} {label(resource)}"


def _plain(value: float, *, digits: int) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
