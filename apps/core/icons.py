"""Icons drawn into the page: the SVG files of the ``@tabler/icons`` package, read once each."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

log = logging.getLogger(__name__)
_BODY = re.compile(r"<svg[^>]*>(.*)</svg>", re.DOTALL)
_NAME = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?")


def folder() -> Path:
    """Where the package keeps its files."""
    return Path(settings.BASE_DIR) / "node_modules" / "@tabler" / "icons" / "icons"


@lru_cache(maxsize=512)
def draw(name: str, css: str = "") -> SafeString:
    """The icon ``name``, or ``filled/name``; hidden from screen readers because the word always stands beside it.

    An icon that is not there leaves an empty box and a line in the log: a page never fails for a picture.
    """
    style, _slash, plain = name.rpartition("/")
    shape = ""
    if _NAME.fullmatch(name):
        try:
            text = (folder() / (style or "outline") / f"{plain}.svg").read_text(encoding="utf-8")
            found = _BODY.search(text)
            shape = re.sub(r"\s+", " ", found[1]).strip() if found else ""
        except OSError as error:
            log.warning("the icon %r cannot be read: %s", name, error)
    paint = (
        'fill="currentColor" stroke="none"'
        if style == "filled"
        else 'fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"'
    )
    return format_html(
        '<svg class="icon {}" width="24" height="24" viewBox="0 0 24 24" {} aria-hidden="true">{}</svg>',
        css,
        mark_safe(paint),  # noqa: S308 - one of the two texts above
        mark_safe(shape),  # noqa: S308 - a file of the pinned package
    )
