"""J2: the work of an instance becomes a flow by the clock: its own pod, its log, two attempts, alarms, time-out."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.journeys.lab import press
from tests.journeys.portal import Portal, wait_until
from tests.journeys.sinks import MailSink, WebhookSink

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("portal")]


def write_job(portal: Portal, instance: dict, program: str) -> None:
    """Change /root/job.py from inside the instance, through its own API."""
    key = portal.api("GET", f"instances/{instance['id']}/key").json["key"]
    host = urlsplit(instance["url"]).hostname or ""
    body = json.dumps({"type": "file", "format": "text", "content": program}).encode()
    answer = portal.at_instance(
        host, "/api/contents/job.py", key=key, method="PUT", body=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status in (200, 201), answer.body


def running_instance(portal: Portal, name: str) -> dict:
    """An instance of that name that runs."""
    made = portal.api(
        "POST", "instances", {"name": name, "image": "jupyter", "size": "small", "queue": "default"}, key=name
    )
    assert made.status in (200, 201), made.body

    def ready() -> dict | None:
        found = portal.api("GET", f"instances/{made.json['id']}").json
        assert found["state"] != "failed", found["reason"]
        return found if found["state"] == "running" else None

    return wait_until("running instance", ready, seconds=180)


def finished_run(portal: Portal, flow: str, *, seen: set[str], seconds: float) -> dict:
    """The next run of the flow that is over and was not seen before."""

    def ended() -> dict | None:
        for run in portal.api("GET", f"runs?flow={flow}").json["items"]:
            if run["id"] not in seen and run["state"] in ("succeeded", "failed", "cancelled"):
                return run
        return None

    found = wait_until("finished run", ended, seconds=seconds, every=0.5)
    seen.add(found["id"])
    return found


def log_of(portal: Portal, run: dict) -> list[str]:
    """The log of each attempt, in order."""
    attempts = sorted(portal.api("GET", f"attempts?run={run['id']}").json["items"], key=lambda row: row["number"])
    return [portal.api("GET", f"attempts/{row['id']}/log?offset=0").body.decode() for row in attempts]


def pods_of(portal: Portal) -> list[str]:
    """Task pods that the cluster has now."""
    from kubekit.client import Cluster
    from kubekit.credentials import parse_kubeconfig

    cluster = Cluster(parse_kubeconfig((portal.home / "localkube" / "kubeconfig").read_text()))
    return [pod["metadata"]["name"] for pod in cluster.list("Pod", labels={"mlportal.io/kind": "attempt"})]


def test_j2_schedule_from_an_instance_42_then_exit_3_then_timeout_with_one_alarm_each(
    portal: Portal, page: Page, mail: MailSink, webhook: WebhookSink
) -> None:
    instance = running_instance(portal, "nightly-source")
    write_job(portal, instance, "print(6*7)\n")

    page.goto(f"/instances/{instance['id']}")
    press(page, "Schedule this", role="link")
    page.wait_for_url("**/flows/new**")
    expect(page.get_by_label("Image")).to_have_value("jupyter")
    expect(page.get_by_label("Size")).to_have_value("small")
    expect(page.get_by_label("Queue")).to_have_value("default")
    expect(page.get_by_label("Volume", exact=True).locator("option:checked")).to_contain_text("home-admin")
    expect(page.get_by_label("Working folder")).to_have_value("/root")
    expect(page.get_by_role("textbox", name="Name")).to_have_value("nightly-source")
    page.get_by_role("textbox", name="Name").fill("nightly")
    page.get_by_role("textbox", name="Command").fill("python /root/job.py")
    page.get_by_label("When").select_option("* * * * *")
    page.get_by_label("Time zone").select_option("Asia/Shanghai")
    page.get_by_label("Time-out (seconds)").fill("60")
    page.locator("#form details summary").click()
    page.get_by_label("Retries after a failure").fill("1")
    page.get_by_label("Seconds before a retry").fill("1")
    page.get_by_label("Alarm by mail").fill("ops@example.org")
    page.get_by_label("Alarm by webhook").fill(webhook.url)
    times = page.locator("#panel [data-fires] li")
    expect(times).to_have_count(5)
    page.get_by_role("button", name="Create").click()
    page.wait_for_url(re.compile(r"/flows/[0-9a-f-]{36}$"))
    flow = page.url.rsplit("/", 1)[1]
    secret = portal.api("POST", f"flows/{flow}/rotate-secret").json["webhook_secret"]

    seen: set[str] = set()
    first = finished_run(portal, flow, seen=seen, seconds=120)
    portal.api("POST", f"flows/{flow}/pause")
    assert first["state"] == "succeeded", first
    assert first["scheduled_at"].endswith(":00Z")
    wait_until("pod that is gone", lambda: not pods_of(portal), seconds=30)
    assert log_of(portal, first) == ["42\n"]
    page.goto(f"/runs/{first['id']}")
    expect(page.locator("pre").filter(has_text="42").first).to_be_visible()

    write_job(portal, instance, "import sys\nsys.exit(3)\n")
    portal.api("POST", f"flows/{flow}/run")
    failed = finished_run(portal, flow, seen=seen, seconds=90)
    attempts = portal.api("GET", f"attempts?run={failed['id']}").json["items"]
    assert (failed["state"], len(attempts)) == ("failed", 2)
    assert "exit code 3" in failed["reason"]["sentence"]
    wait_until("mail and webhook", lambda: mail.about("nightly") and webhook.calls, seconds=30)

    write_job(portal, instance, "import time\nwhile True: time.sleep(1)\n")
    started = time.monotonic()
    portal.api("POST", f"flows/{flow}/run")
    late = finished_run(portal, flow, seen=seen, seconds=240)
    assert not pods_of(portal), "the pod is gone before the run says so"
    assert time.monotonic() - started >= 120, "each of the two attempts had its 60 s"
    assert late["state"] == "failed"
    assert "time-out" in late["reason"]["sentence"].lower()
    ends = portal.api("GET", f"attempts?run={late['id']}").json["items"]
    assert len(ends) == 2
    page.goto(f"/runs/{late['id']}")
    expect(page.get_by_role("main")).to_contain_text(re.compile("time-out", re.IGNORECASE))

    wait_until("second alarm", lambda: len(webhook.calls) >= 2 and len(mail.about("nightly")) >= 2, seconds=30)
    time.sleep(3)
    assert (len(webhook.calls), len(mail.about("nightly"))) == (2, 2), "one alarm each, no more"
    for call in webhook.calls:
        signed = f"{call.headers['webhook-id']}.{call.headers['webhook-timestamp']}.".encode() + call.body
        raw = base64.b64decode(secret.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.new(raw, signed, hashlib.sha256).digest()).decode()
        assert call.headers["webhook-signature"] == expected
