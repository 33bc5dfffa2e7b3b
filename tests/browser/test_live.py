"""Pages change without reload, rows do not move, and a page without its live channel says so and goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visits import sign_in
from tests.browser.web import ROOT, Site

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

QUICK_MS = 10_000
"""A change is seen within two seconds where nothing else runs; a machine that is busy with tests gets more."""

CHANGE = """
import django; django.setup()
from apps.core import actors, live
from apps.core.transitions import transition
from apps.instances.models import Instance
from django.db import transaction
found = Instance.objects.as_system()
"""


def elsewhere(portal: Site, program: str) -> None:
    """Run a change in another process, as the control process makes it."""
    subprocess.run([sys.executable, "-c", CHANGE + program], env=portal.environ, cwd=ROOT, check=True)


def live(page: Any) -> None:
    """Wait for the socket."""
    expect(page.locator("html")).to_have_attribute("data-live", "yes")


def test_a_row_changes_where_it_stands(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/instances")
    live(page)
    row = page.locator("#rows tr", has_text="train-bert")
    expect(row.locator(".chip")).to_have_text("running")
    order = page.locator("#rows tr").evaluate_all("rows => rows.map(row => row.id)")
    elsewhere(portal, 'transition(found.get(name="train-bert"), "stopping", actor=actors.system("test"))')
    expect(row.locator(".chip")).to_have_text("stopping", timeout=QUICK_MS)
    assert page.locator("#rows tr").evaluate_all("rows => rows.map(row => row.id)") == order


def test_the_header_of_an_object_changes(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/instances")
    page.locator("#rows a.name", has_text="ending").click()
    live(page)
    expect(page.locator("#object-header .chip")).to_have_text("stopping")
    elsewhere(portal, 'transition(found.get(name="ending"), "stopped", actor=actors.system("test"))')
    expect(page.locator("#object-header .chip")).to_have_text("stopped", timeout=QUICK_MS)


def test_a_panel_of_the_home_page_follows_its_kinds(browser: Any, portal: Site) -> None:
    context = browser.new_context()
    page = context.new_page()
    sign_in(page, portal.origin, "wei")
    live(page)
    row = page.locator("#panel-instances tr", has_text="标注工具")
    expect(row.locator(".chip")).to_have_text("starting")
    elsewhere(portal, 'transition(found.get(name="标注工具"), "running", actor=actors.system("test"))')
    expect(row.locator(".chip")).to_have_text("running", timeout=5000)
    context.close()


def test_new_rows_wait_behind_a_button(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/instances")
    live(page)
    before = page.locator("#rows tr").count()
    elsewhere(
        portal,
        """
one = found.get(name="old"); one.pk = None; one._state.adding = True; one.name = "just-made"
with transaction.atomic():
    one.save(force_insert=True); live.announce(one)
""",
    )
    button = page.locator("[data-list-show]")
    expect(button).to_have_text("1 new or changed: show", timeout=QUICK_MS)
    assert page.locator("#rows tr").count() == before
    button.click()
    expect(page.locator("#rows tr", has_text="just-made")).to_have_count(1)
    expect(button).to_be_hidden()


def test_without_its_channel_the_page_says_since_when_and_asks_itself(page: Any, portal: Site) -> None:
    page.route_web_socket("**/live/", lambda socket: socket.close())
    page.goto(f"{portal.origin}/instances")
    expect(page.locator("[data-live-note]")).to_contain_text("Not live since", timeout=6000)
    elsewhere(portal, 'transition(found.get(name="waiting"), "starting", actor=actors.system("test"))')
    row = page.locator("#rows tr", has_text="waiting")
    expect(row.locator(".chip")).to_have_text("starting", timeout=13000)


def test_filters_go_into_the_address_and_come_back_with_it(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/instances")
    page.locator("thead a", has_text="Name").click()
    page.wait_for_url("**/instances?sort=name")
    page.locator("#filters select[name=state]").select_option("failed")
    page.wait_for_url("**/instances?state=failed&sort=name")
    expect(page.locator("#rows tr")).to_have_count(1)
    page.locator("#filters [type=search]").fill("nothing-like-this")
    expect(page.locator(".empty-list-title")).to_have_text("Nothing matches these filters.")
    page.go_back()
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#filters select[name=state]")).to_have_value("failed")


def test_a_destructive_button_says_what_is_lost_and_keeps_it_by_default(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/instances")
    page.locator("#rows a.name", has_text="old").click()
    page.locator(".page-top [data-bs-toggle=dropdown]").click()
    page.locator(".page-top [data-verb=delete]").click()
    dialog = page.locator("#confirm")
    expect(dialog).to_be_visible()
    assert dialog.locator("#confirm-lost").inner_text().strip()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#object-header .chip")).to_have_text("stopped")


def test_copy_puts_the_text_on_the_clipboard_and_says_so(page: Any, portal: Site) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=portal.origin)
    page.goto(f"{portal.origin}/instances")
    page.locator("#rows a.name", has_text="old").click()
    button = page.locator("[data-copy]").first
    button.click()
    assert page.evaluate("navigator.clipboard.readText()") == button.get_attribute("data-copy")
    expect(page.locator("#said")).to_have_text("Copied")


def test_theme_and_folded_rail_stay_after_a_reload(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/audit")
    page.locator("[data-theme-form]").locator("xpath=..").locator("[data-bs-toggle=dropdown]").click()
    with page.expect_response("**/preferences/theme"):
        page.locator("[data-theme-form] button[value=dark]").click()
    assert page.locator("html").get_attribute("data-bs-theme") == "dark"
    page.locator("[data-rail-fold]").click()
    page.reload()
    assert page.locator("html").get_attribute("data-bs-theme") == "dark"
    assert page.locator("html").get_attribute("data-rail") == "narrow"


def test_the_first_page_is_small(page: Any, portal: Site) -> None:
    sizes: list[int] = []

    def count(answer: Any) -> None:
        if "/static/" in answer.url and answer.request.resource_type in ("script", "stylesheet"):
            sizes.append(answer.request.sizes()["responseBodySize"])

    page.context.clear_cookies()
    page.on("response", count)
    page.goto(f"{portal.origin}/sign-in", wait_until="networkidle")
    assert sizes
    assert sum(sizes) <= 200_000


def test_a_refused_action_says_why_and_what_to_do_and_leaves_the_page_as_it_is(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/instances")
    page.locator("#rows a.name", has_text="old").click()
    page.locator(".page-top [data-verb=start]").click()
    toast = page.locator("#toasts .toast-error")
    expect(toast).to_contain_text("The queue “vision” has no room for this")
    expect(toast.locator(".toast-next")).to_contain_text("Ask for at most")
    expect(page.locator("#object-header .chip")).to_have_text("stopped")


def test_a_double_click_on_create_makes_one(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/volumes")
    before = page.locator("#rows tr").count()
    page.goto(f"{portal.origin}/volumes/new")
    page.fill("[name=name]", "clicked-twice")
    page.select_option("[name=queue]", label="vision")
    page.dblclick("[data-submit]")
    page.wait_for_url(lambda url: not url.endswith("/new"))
    page.goto(f"{portal.origin}/volumes")
    expect(page.locator("#rows tr")).to_have_count(before + 1)


def test_what_changes_before_the_page_listens_is_shown_too(page: Any, portal: Site) -> None:
    elsewhere(portal, 'transition(found.get(name="train-bert"), "stopping", actor=actors.system("test"))')
    page.goto(f"{portal.origin}/instances")
    address = page.locator("#rows a.name", has_text="train-bert").get_attribute("href")

    def late(socket: Any) -> None:
        elsewhere(portal, 'transition(found.get(name="train-bert"), "stopped", actor=actors.system("test"))')
        socket.connect_to_server()

    page.route_web_socket("**/live/", late)
    page.goto(f"{portal.origin}{address}")
    expect(page.locator("#object-header .chip")).to_have_text("stopped", timeout=20_000)


def test_what_is_fetched_again_unasked_does_not_turn_pale(page: Any, portal: Site) -> None:
    page.goto(f"{portal.origin}/instances")
    address = page.locator("#rows a.name", has_text="train-bert").get_attribute("href")
    page.goto(f"{portal.origin}{address}/events")
    opacity = """() => {
      const tab = document.getElementById("object-tab");
      tab.classList.add("htmx-request");
      return getComputedStyle(tab.querySelector(".list-box")).opacity;
    }"""
    assert page.evaluate(opacity) == "1"
