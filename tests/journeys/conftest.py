"""One running portal, one browser and two sinks for all journeys of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.journeys.portal import PASSWORD, Portal
from tests.journeys.sinks import MailSink, WebhookSink

expect.set_options(timeout=30_000)

CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def mail() -> Iterator[MailSink]:
    """A mail server."""
    sink = MailSink()
    sink.start()
    yield sink
    sink.stop()


@pytest.fixture(scope="session")
def webhook() -> Iterator[WebhookSink]:
    """A webhook receiver."""
    sink = WebhookSink()
    sink.start()
    yield sink
    sink.stop()


@pytest.fixture(scope="session")
def portal(tmp_path_factory: pytest.TempPathFactory, mail: MailSink, webhook: WebhookSink) -> Iterator[Portal]:
    """The portal, started by its command; Ctrl-C ends it and leaves nothing."""
    images = Path.home() / ".cache" / "mlportal" / "images"  # built once per machine, named by content
    found = Portal(
        home=tmp_path_factory.mktemp("journey") / "home",
        env={"PORTAL_SMTP_URL": mail.url, "PORTAL_EGRESS_ALLOW": "127.0.0.1", "LOCALKUBE_IMAGE_CACHE": str(images)},
    )
    found.start()
    yield found
    assert found.stop() == 0, found.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium. A missing browser is a failure, not a skip.

    Playwright keeps an event loop in this thread while it is open, and asynchronous tests of the same worker need
    one of their own.
    """
    assert Path(CHROMIUM).exists(), "Chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def context(browser: Browser, portal: Portal) -> Iterator[BrowserContext]:
    """A fresh browser profile."""
    found = browser.new_context(base_url=portal.url, locale="en-GB", timezone_id="Europe/Berlin")
    found.set_default_timeout(20_000)
    yield found
    found.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A signed-in administrator's tab."""
    found = context.new_page()
    sign_in(found, "admin", PASSWORD)
    return found


def sign_in(page: Page, name: str, password: str) -> None:
    """As a person does it."""
    page.goto("/sign-in")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")
