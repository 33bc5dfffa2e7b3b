"""The way from signing in to a new instance by the keyboard alone, with the focus visible at each stop."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.web import PASSWORD, Site

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]
MOST_STOPS = 60
FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  const seen = style.outlineStyle !== "none" || style.boxShadow !== "none";
  return {text: (at.innerText || at.value || at.name || "").trim(), tag: at.tagName, seen};
}"""


def tab_to(page: Any, text: str) -> None:
    """Press Tab until the element with this text has the focus; each stop shows where it is."""
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at["tag"] != "BODY":
            assert at["seen"], f"the focus on {at} cannot be seen"
        if at["text"] == text:
            return
    raise AssertionError(f"Tab does not reach {text!r}")


def test_from_signing_in_to_a_new_instance_without_a_mouse(browser: Any, portal: Site) -> None:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(f"{portal.origin}/sign-in")
    page.locator("[name=username]").focus()
    page.keyboard.type("wei")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/sign-in" not in url)

    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_attribute("href", "#main")  # the skip link comes first
    tab_to(page, "Instances")
    page.keyboard.press("Enter")
    page.wait_for_url("**/instances")
    tab_to(page, "New instance")
    page.keyboard.press("Enter")
    page.wait_for_url("**/instances/new**")
    tab_to(page, "Create")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/instances/" in url and "/new" not in url)
    page.context.close()
