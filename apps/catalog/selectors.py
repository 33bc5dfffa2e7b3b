"""Images and sizes as lists show them."""

from __future__ import annotations

from django.db.models import Q

from apps.core.listing import ListSpec

_COMMON = {
    "name": lambda text: Q(name__icontains=text),
    "retired": lambda text: Q(retired=text == "yes"),
}
_SORTS = {"position": "position", "name": "name", "created": "created_at"}
IMAGE_LIST = ListSpec(
    filters={**_COMMON, "purpose": lambda text: Q(purpose=text)}, sorts=_SORTS, default_sort="position"
)
SIZE_LIST = ListSpec(
    filters=_COMMON,
    sorts={**_SORTS, "cpu": "cpu_millis", "memory": "memory_bytes"},
    default_sort="position",
)
