"""Takes a picture of every page, at two widths, in both themes and both languages.

    python -m tests.browser.shots FOLDER [--only TEXT] [--widths 1440,390] [--themes light] [--languages en]

Look at them: alignment, density, empty and error states, long names, Chinese line breaks.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.visits import Visit, discover, sign_in
from tests.browser.web import site

CHROMIUM = "/usr/bin/chromium"


def main() -> int:
    """Start a portal, look at everything, end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--origin", help="a site that runs already, filled by tests.browser.sample")
    parser.add_argument("--only", default="")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--widths", default="1440,390")
    parser.add_argument("--themes", default="light,dark")
    parser.add_argument("--languages", default="en,zh-hans")
    wanted = parser.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    if wanted.origin:
        return _take(wanted.origin, wanted)
    with site() as running:
        return _take(running.origin, wanted)


def _take(origin: str, wanted: argparse.Namespace) -> int:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        _anonymous(page, origin, wanted)
        sign_in(page, origin, wanted.user)
        visits = [visit for visit in discover(page, origin) if wanted.only in visit.path]
        for theme, language in itertools.product(wanted.themes.split(","), wanted.languages.split(",")):
            _prefer(page, origin, theme, language)
            for width in map(int, wanted.widths.split(",")):
                page.set_viewport_size({"width": width, "height": 900 if width > 600 else 844})
                for visit in visits:
                    _shoot(page, origin, visit, wanted.folder / f"{visit.name}.{width}.{theme}.{language}.png")
        browser.close()
    return 0


def _anonymous(page: Any, origin: str, wanted: argparse.Namespace) -> None:
    if wanted.only and wanted.only not in "/sign-in":
        return
    for width in map(int, wanted.widths.split(",")):
        page.set_viewport_size({"width": width, "height": 844})
        _shoot(page, origin, Visit(name="sign-in", path="/sign-in"), wanted.folder / f"sign-in.{width}.png")
    page.fill("[name=username]", "nobody")
    page.fill("[name=password]", "wrong")
    page.click("[data-submit]")
    page.wait_for_selector(".banner")
    page.screenshot(path=str(wanted.folder / "sign-in.wrong.png"), full_page=True)


def _prefer(page: Any, origin: str, theme: str, language: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    for field, value in (("theme", theme), ("language", language)):
        page.goto(f"{origin}/password")
        form = page.locator(f"form[action='/preferences/{field}']")
        form.locator("xpath=..").locator("[data-bs-toggle=dropdown]").click()
        with page.expect_response(lambda answer, field=field: f"/preferences/{field}" in answer.url):
            form.locator(f"button[value='{value}']").click()
    page.wait_for_load_state()


def _shoot(page: Any, origin: str, visit: Visit, file: Path) -> None:
    answer = page.goto(origin + visit.path, wait_until="load")
    page.wait_for_timeout(250)
    page.screenshot(path=str(file), full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    status = answer.status if answer is not None else 0
    if wide or status >= 500:
        sys.stdout.write(f"{file.name}: status {status}{', wider than the screen' if wide else ''}\n")


if __name__ == "__main__":
    sys.exit(main())
