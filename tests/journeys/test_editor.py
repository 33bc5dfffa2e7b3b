"""VS Code in the browser, from the page: the real one where it is installed, else the reason on the button."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from localkube.node import editors
from tests.journeys.entering import Entered
from tests.journeys.portal import ROOT, Portal, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("portal")]


@pytest.fixture(scope="module")
def instance(portal: Portal) -> Iterator[Entered]:
    found = Entered.launch(portal, "editor")
    yield found
    found.delete()


def is_installed(portal: Portal) -> bool:
    recipe = ROOT / "docker" / "dev-base" / "code-server"
    return editors.installed(Path(portal.env["LOCALKUBE_IMAGE_CACHE"]), recipe) is not None


def test_one_click_opens_it_without_a_key_or_the_button_says_why(
    portal: Portal, instance: Entered, page: Page, context: BrowserContext
) -> None:
    here = page.locator("#editor")
    wanted = "4." if is_installed(portal) else "make code-server"

    def is_said() -> bool:
        """Asked again: a busy machine may not have answered in time, and the button says that, too."""
        page.goto(f"/instances/{instance.id}")
        expect(here.get_by_role("button", name="VS Code")).to_be_visible(timeout=90_000)
        return wanted in here.inner_text()

    wait_until(f"button that says {wanted}", is_said, seconds=300)
    if not is_installed(portal):
        expect(here.get_by_role("button", name="VS Code")).to_be_disabled()
        return
    addresses: list[str] = []
    context.on("request", lambda request: addresses.append(request.url))
    key = instance.key()
    with context.expect_page() as opened:
        here.get_by_role("button", name="VS Code").click(timeout=60_000)
    code = opened.value
    code.wait_for_url("**/code-server/**", timeout=120_000)
    expect(code.locator(".monaco-workbench")).to_be_visible(timeout=180_000)
    expect(code.locator(".monaco-workbench .statusbar")).to_be_visible(timeout=120_000)
    assert addresses
    assert not [url for url in addresses if key in url or "ticket=" in url or "token=" in url]
    assert instance.ask("/code-server/").status == 403
    heartbeat = "test -e /root/.local/share/code-server/heartbeat && echo beats || true"
    wait_until("heartbeat in the home", lambda: "beats" in instance.run("/bin/sh", "-c", heartbeat), seconds=180)
    assert instance.ask("/code-server/proxy/8888/lab", cookie=instance.cookie()).status in {403, 404}
    code.close()


def test_the_ways_in_stand_on_the_page_with_their_commands(instance: Entered, page: Page) -> None:
    page.goto(f"/instances/{instance.id}")
    page.get_by_text("From a program (curl)").click()
    command = page.locator("details[open] pre").first
    expect(command).to_contain_text(re.compile(r"curl .*Authorization: token \$KEY.*/api/status"))
    page.set_viewport_size({"width": 390, "height": 800})
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
