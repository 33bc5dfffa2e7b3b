"""What is to be known of an image before it is chosen, in words."""

from __future__ import annotations

from django.utils.translation import gettext as _

from apps.catalog.models import Image, Size


def facts(image: Image) -> list[str]:
    """Version, CUDA, architecture, pinned by digest: what there is of these."""
    found = [image.version, f"CUDA {image.cuda}" if image.cuda else "", image.get_architecture_display()]
    return [
        *filter(None, (*found[:2], found[2] if image.architecture else "")),
        *([_("pinned")] if image.is_pinned else []),
    ]


def label(image: Image) -> str:
    """``torch (2.5, CUDA 12.4): what it is`` for lists to choose from."""
    known = ", ".join(facts(image))
    head = f"{image.name} ({known})" if known else image.name
    return f"{head}: {image.description}" if image.description else head


def mismatch(image: Image, size: Size) -> str:
    """Why image and size make little sense together; empty when they go well or nothing is known of the image."""
    if image.cuda and not size.gpus:
        return _(
            "The image “%(image)s” is made for GPUs (CUDA %(cuda)s) and the size “%(size)s” has none: what needs a GPU "
            "fails in it. Choose a size with GPUs, or an image without CUDA."
        ) % {"image": image.name, "cuda": image.cuda, "size": size.name}
    if size.gpus and not image.cuda and image.team_id is None:
        return _(
            "The size “%(size)s” holds GPUs and the image “%(image)s” has no CUDA: they stay idle unless you install "
            "it yourself. Choose an image with CUDA, or a size without GPUs."
        ) % {"image": image.name, "size": size.name}
    return ""
