"""J1: a person's first day, in the browser, from New instance to a home that survives and a key that died."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.journeys.lab import open_lab, run_in_terminal, stop_from_page
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("portal")]


def test_j1_new_instance_keyed_lab_stop_start_home_stays_old_key_dies(
    portal: Portal, page: Page, context: BrowserContext
) -> None:
    page.get_by_role("link", name="New instance").first.click()
    expect(page.get_by_role("complementary").get_by_text("Will start now", exact=True)).to_be_visible()
    visible = page.locator("#form select:visible, #form input:visible:not([type=hidden])")
    assert visible.count() == 3, "image, size and queue are asked and nothing else"
    page.get_by_role("button", name="Create").click()

    page.wait_for_url(re.compile(r"/instances/[0-9a-f-]{36}$"))
    instance = page.url.rsplit("/", 1)[1]
    for stage in ("volume", "scheduled", "image", "started", "ready"):
        expect(page.locator(f'[data-stage="{stage}"]')).to_be_visible()
    expect(page.get_by_role("button", name="Open JupyterLab")).to_be_visible(timeout=180_000)
    for stage in ("volume", "scheduled", "image", "started", "ready"):
        expect(page.locator(f'[data-stage="{stage}"]')).to_contain_text(re.compile(r"\d"))

    addresses: list[str] = []
    context.on("request", lambda request: addresses.append(request.url))
    key = portal.api("GET", f"instances/{instance}/key").json["key"]
    lab = open_lab(page)
    host = urlsplit(lab.url).hostname or ""
    assert re.fullmatch(r"i-[0-9a-f]+\.apps\.localhost", host)
    run_in_terminal(lab, "echo 'print(6*7)' > /root/job.py && echo written-$((1+1))", expect_file=("job.py",))
    assert addresses, "the browser's requests were seen"
    assert not [url for url in addresses if key in url or "token=" in url or "ticket=" in url]
    listing = portal.at_instance(host, "/api/contents/job.py?content=1", key=key)
    assert listing.status == 200 and "print(6*7)" in listing.json["content"]
    lab.close()

    stop_from_page(page)
    expect(page.get_by_role("button", name="Start")).to_be_visible(timeout=60_000)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("button", name="Open JupyterLab")).to_be_visible(timeout=60_000)
    new_key = portal.api("GET", f"instances/{instance}/key").json["key"]
    assert new_key != key and len(new_key) >= 22
    again = wait_until(
        "lab that answers to the new key",
        lambda: portal.at_instance(host, "/api/contents/job.py?content=1", key=new_key).status == 200,
        seconds=20,
    )
    assert again
    assert "print(6*7)" in portal.at_instance(host, "/api/contents/job.py?content=1", key=new_key).json["content"]
    assert portal.at_instance(host, "/api/contents", key=key).status == 403
    assert portal.at_instance(host, "/lab").status == 403
