"""An instance with variables, a start-up script, shared memory and a time zone, watched as it starts, then changed."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.journeys.entering import Entered
from tests.journeys.lab import press
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("portal")]

#: Waits until it is told to go on, so that nothing here depends on how fast anything is; and is as careless as people.
SCRIPT = """echo "begun in $COLOUR"
until [ -e /root/go-on ]; do sleep 0.2; done
echo "the key is $(cat /etc/mlportal/key)."
exit 3
"""


def test_a_start_is_watched_live_and_a_change_is_seen_before_it_is_made(portal: Portal, page: Page) -> None:
    more = {"env": {"COLOUR": "red"}, "script": SCRIPT, "shm_bytes": 48 << 20, "time_zone": "Asia/Tokyo"}
    body = {"name": "comfort", "image": "jupyter", "size": "small", "queue": "default", **more}
    wait_until("room", lambda: portal.api("POST", "instances", body, key="comfort").status == 201, seconds=180)
    made = portal.api("POST", "instances", body, key="comfort").json
    instance = Entered(portal, made["id"], made["name"], urlsplit(made["url"]).hostname or "")

    page.goto(f"/instances/{instance.id}")
    live = page.locator("#start-log")
    expect(live).to_contain_text("begun in red", timeout=90_000)
    assert instance.item()["state"] in {"queued", "starting"}
    instance.run("/bin/sh", "-c", "touch /root/go-on")
    expect(page.get_by_role("button", name="Open JupyterLab")).to_be_visible(timeout=180_000)
    expect(live.locator(".log")).to_have_count(0, timeout=90_000)
    page.reload()
    expect(page.locator('[data-startup-code="3"]')).to_contain_text("failed with exit code 3", timeout=90_000)

    page.goto(f"/instances/{instance.id}/log")
    expect(page.locator("#log")).to_contain_text("the key is", timeout=90_000)
    assert instance.key() not in page.content()

    assert "JST" in instance.run("/bin/sh", "-c", "date +%Z")
    assert int(instance.run("/bin/sh", "-c", "df -k --output=size /dev/shm | tail -1")) == 48 << 10

    page.goto(f"/instances/{instance.id}/change")
    page.get_by_label("Start-up script").fill("")
    page.get_by_label("Its value").first.fill("blue")
    page.get_by_label("When").select_option("restart")
    plan = page.locator('[data-plan="lines"]')
    expect(plan).to_contain_text("“blue”", timeout=90_000)
    expect(plan).to_contain_text("Start-up script")
    assert instance.item()["options"]["env"] == {"COLOUR": "red"}
    page.get_by_role("button", name="Change", exact=True).click()
    page.wait_for_url(re.compile(rf"/instances/{instance.id}$"))
    wait_until("change in force", lambda: instance.item()["options"].get("env") == {"COLOUR": "blue"}, seconds=180)
    wait_until("instance that runs again", lambda: instance.item()["state"] == "running", seconds=180)
    assert "blue" in instance.run("/bin/sh", "-c", "echo $COLOUR")

    page.goto(f"/instances/{instance.id}")
    press(page, "Rename", role="link")
    page.get_by_label("Name").fill("renamed")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.get_by_role("heading", name="renamed")).to_be_visible(timeout=90_000)
    assert "blue" in instance.run("/bin/sh", "-c", "echo $COLOUR"), "its pod has the name that it had"
    instance.delete()
