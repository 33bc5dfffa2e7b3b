"""What every template needs besides the page itself: the rail, the remembered queue, theme and language."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from apps.core import nav

QUEUE_COOKIE = "mlportal-queue"
RAIL_COOKIE = "mlportal-rail"
THEME_COOKIE = "mlportal-theme"
THEMES = ("light", "dark", "auto")


class Portal:
    """Worked out only where a template asks: fragments and error pages draw no rail."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    @property
    def queue(self) -> str:
        """The queue that the switcher remembers; empty means all."""
        return self._request.COOKIES.get(QUEUE_COOKIE, "")[:63]

    @property
    def theme(self) -> str:
        """``light``, ``dark`` or ``auto`` (the browser's)."""
        chosen = getattr(self._request.user, "theme", "") if self.signed_in else ""
        chosen = chosen or self._request.COOKIES.get(THEME_COOKIE, "")
        return chosen if chosen in THEMES else "auto"

    @property
    def narrow_rail(self) -> bool:
        """Whether the person folded the rail to icons."""
        return self._request.COOKIES.get(RAIL_COOKIE) == "narrow"

    @property
    def signed_in(self) -> bool:
        """Whether the rail and the account menu are drawn."""
        user = getattr(self._request, "user", None)
        return user is not None and user.is_authenticated

    @property
    def languages(self) -> list[tuple[str, str]]:
        """Code and own name of each language."""
        return list(settings.LANGUAGES)

    def links(self, section: str) -> list[nav.Link]:
        """The rail of this person with ``section`` marked."""
        actor = self._request.actor  # type: ignore[attr-defined]
        return nav.links(actor, path=self._request.path, section=section, queue=self.queue)


def portal(request: HttpRequest) -> dict[str, Any]:
    """Context processor: ``portal``."""
    return {"portal": Portal(request)}
