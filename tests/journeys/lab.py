"""What people do in JupyterLab and on an instance's page, with the real browser."""

from __future__ import annotations

from typing import Literal

from playwright.sync_api import Page, expect


def open_lab(page: Page) -> Page:
    """Press Open JupyterLab; the new tab, loaded."""
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open JupyterLab").click()
    lab: Page = opened.value
    lab.wait_for_url("**/lab**", timeout=60_000)
    expect(lab.locator(".jp-LauncherCard").first).to_be_visible(timeout=60_000)
    return lab


def run_in_terminal(lab: Page, command: str, *, expect_file: tuple[str, ...]) -> None:
    """Open a terminal from the launcher, type the command, wait until its files show in the file browser."""
    lab.locator('.jp-LauncherCard[data-category="Other"]', has_text="Terminal").click()
    terminal = lab.locator(".jp-Terminal")
    expect(terminal).to_be_visible()
    lab.locator(".xterm-helper-textarea").wait_for(state="attached")
    shown = lab.locator(".jp-DirListing-itemText", has_text=expect_file[0])
    for _ in range(3):  # what is typed before the shell is connected is lost
        terminal.click()
        lab.keyboard.type(command)
        lab.keyboard.press("Enter")
        try:
            expect(shown).to_be_visible(timeout=15_000)
            break
        except AssertionError:
            continue
    for name in expect_file:
        expect(lab.locator(".jp-DirListing-itemText", has_text=name)).to_be_visible()


def stop_from_page(page: Page) -> None:
    """Stop through the menu, saying yes to what is lost."""
    press(page, "Stop")


def press(page: Page, name: str, *, role: Literal["button", "link"] = "button") -> None:
    """Press a button of an object's header, in the menu when it is there, and confirm when asked."""
    button = page.get_by_role(role, name=name, exact=True)
    if not button.first.is_visible():
        page.get_by_role("button", name="More actions").first.click()
    button.first.click()
    dialog = page.get_by_role("dialog")
    if dialog.is_visible():
        dialog.get_by_role("button", name=name, exact=True).click()
