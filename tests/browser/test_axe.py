"""Every page, at both widths and in both themes, has no serious finding of axe-core."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.visits import discover
from tests.browser.web import ROOT, Site

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .map(one => `${one.id}: ${one.nodes.map(node => node.target.join(" ") + " " + node.failureSummary).join(" | ")}`);
}"""


def _findings(page: Any) -> list[str]:
    # What is being fetched is shown pale for that moment; it is judged when it stands.
    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(RUN)
    return found


@pytest.mark.parametrize(("width", "theme", "per_kind"), [(1440, "light", 2), (390, "dark", 1)])
def test_no_page_has_a_serious_finding(page: Any, portal: Site, width: int, theme: str, per_kind: int) -> None:
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    wrong: list[str] = []
    visits = discover(page, portal.origin, per_kind=per_kind)
    page.set_viewport_size({"width": width, "height": 844})
    for visit in visits:
        answer = page.goto(portal.origin + visit.path)
        if answer.status >= 500:
            wrong.append(f"{visit.path}: status {answer.status}")
        wrong += [f"{visit.path}: {finding}" for finding in _findings(page)]
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wrong.append(f"{visit.path}: wider than {width} pixels")
    assert not wrong, "\n".join(wrong)


def test_the_sign_in_page_has_no_serious_finding(browser: Any, portal: Site) -> None:
    page = browser.new_page()
    page.goto(f"{portal.origin}/sign-in")
    assert not _findings(page)
    page.close()
