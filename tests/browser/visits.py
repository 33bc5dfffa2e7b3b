"""Which pages there are to look at: read from the portal itself, so that a new page is never forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.browser.web import PASSWORD

#: What an object's page leads to besides its tabs.
MORE = ".page-top a.btn, .page-top a.dropdown-item, .card .form-hint a"
FIXED = ("/", "/password", "/account/ssh-keys", "/nothing-here")


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A page, its file name, and who looks."""

    name: str
    path: str
    user: str = "admin"


def sign_in(page: Any, origin: str, user: str) -> None:
    """By the form, as a person does."""
    page.goto(f"{origin}/sign-in")
    page.fill("[name=username]", user)
    page.fill("[name=password]", PASSWORD)
    page.click("[data-submit]")
    page.wait_for_url(lambda url: "/sign-in" not in url)


def _links(page: Any, selector: str) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        selector,
        "links => links.map(link => new URL(link.href)).filter(url => url.origin === location.origin)"
        ".map(url => url.pathname)",
    )
    return list(dict.fromkeys(found))


def discover(page: Any, origin: str, *, per_kind: int = 12) -> list[Visit]:
    """Every place of the rail, the forms that its lists lead to, some objects of each list, and the tabs of two."""
    page.goto(f"{origin}/")
    visits = [Visit(name=_name(path), path=path) for path in FIXED]
    seen = set(FIXED)

    def add(path: str) -> bool:
        if path in seen:
            return False
        seen.add(path)
        visits.append(Visit(name=_name(path), path=path))
        return True

    for place in [*_links(page, ".rail a.rail-link"), "/account"]:
        add(place)
        answer = page.goto(origin + place)
        if answer is None or answer.status != 200:
            continue
        for form in _links(page, ".page-top a.btn, .page-top a.dropdown-item"):
            add(form)
        kept = [path for path in _links(page, "#rows a.name, #rows td:first-child a") if path not in seen]
        for number, path in enumerate(kept[:per_kind]):
            add(path)
            page.goto(origin + path)
            for more in _links(page, MORE) if number == 0 else ():
                add(more)
            for tab in _links(page, ".object-tabs a") if number < 2 else ():
                add(tab)
    return visits


def _name(path: str) -> str:
    parts = [part[:8] if len(part) == 36 else part for part in path.strip("/").split("/")]
    return "-".join(parts) or "home"
