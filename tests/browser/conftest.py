"""One portal with sample rows and one Chromium for all browser tests of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.shots import CHROMIUM
from tests.browser.visits import sign_in
from tests.browser.web import Site, site

# How quick a page is, is measured elsewhere: here it has to get there, on a busy machine too.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="session")
def portal() -> Iterator[Site]:
    """The portal's web process with rows in every state."""
    with site() as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium; a missing one fails the test, it never skips.

    Playwright keeps an event loop in this thread while it is open: not a moment longer than these tests need it,
    or asynchronous tests of the same worker could not start theirs.
    """
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, portal: Site) -> Iterator[Any]:
    """A page of the administrator in a session of its own; a script error or a refused resource fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on(
        "console",
        lambda message: faults.append(message.text) if "Content Security Policy" in message.text else None,
    )
    sign_in(opened, portal.origin, "admin")
    yield opened
    context.close()
    assert not faults
