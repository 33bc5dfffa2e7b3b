"""Template tags for amounts of cluster resources by their names."""

from __future__ import annotations

from django import template
from django.utils.translation import gettext as _

from apps.core import quantities

register = template.Library()


@register.filter
def amount(count: int, resource: str) -> str:
    """``{{ 1500|amount:"cpu_millis" }}`` -> ``1.5 CPU``; GPUs and the like are plain counts."""
    if resource == "cpu_millis":
        return quantities.cpus(count)
    return quantities.size(count) if resource.endswith("_bytes") else str(count)


@register.filter
def resource_label(resource: str) -> str:
    """What people call a resource."""
    words = {"cpu_millis": _("CPU"), "memory_bytes": _("memory"), "nvidia.com/gpu": _("GPU")}
    return words.get(resource, resource)
