"""The browser's walls (F38 to F42): what runs in one instance gets nowhere with its visitor's rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.sync_api import BrowserContext, Page

from tests.docker import hostile
from tests.journeys.entering import Entered, in_a_loop
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("portal")]

ATTACK = Path(__file__).parent / "attack.html"
SERVE = "cd /root/site && exec python3 -m http.server --bind 127.0.0.1 7777"
ECHO = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(self.headers).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 7778), Echo).serve_forever()
"""
NAMES = """
    X-Forwarded-User X-Forwarded-Email X-Forwarded-Preferred-Username X-Remote-User Remote-User X-User X-User-Id
    X-Auth-Request-User X-Auth-Request-Email X-Webauth-User X-Original-User X-Authenticated-User X-Jupyterhub-User
    X-Goog-Authenticated-User-Email kubeflow-userid
"""
FORGED = dict.fromkeys(NAMES.split(), "admin")
BACKGROUND = 'nohup "$@" > /dev/null 2>&1 &'


@pytest.fixture(scope="module")
def attacker(portal: Portal) -> Iterator[Entered]:
    """The instance whose program is hostile."""
    found = Entered.launch(portal, "attacker")
    yield found
    found.delete()


@pytest.fixture(scope="module")
def victim(portal: Portal) -> Iterator[Entered]:
    """Another one that the same person has open."""
    found = Entered.launch(portal, "victim")
    found.run("/bin/sh", "-c", "echo 'window.stolen = \"canary\"' > /root/secret.js")
    found.run("/bin/sh", "-c", BACKGROUND, "sh", "python3", "-c", ECHO)
    yield found
    found.delete()


def origin(instance: Entered) -> str:
    return f"http://{instance.host}:{instance.portal.port}"


def test_a_page_in_one_instance_gets_nowhere_in_another_one_or_in_the_portal(
    portal: Portal, attacker: Entered, victim: Entered, page: Page, context: BrowserContext
) -> None:
    attacker.run("mkdir", "-p", "/root/site")
    attacker.run("/bin/sh", "-c", 'printf %s "$1" > /root/site/attack.html', "sh", ATTACK.read_text())
    attacker.run("/bin/sh", "-c", BACKGROUND, "sh", "/bin/sh", "-c", SERVE)
    key = victim.key()
    terminal = victim.ask("/api/terminals", key=key, method="POST").json["name"]
    kernel = victim.ask("/api/kernels", key=key, method="POST", body={"name": "python3"}).json["id"]
    for instance in (victim, attacker):  # the person has both open
        _enter(page, instance)
    before = _cookies(context, victim)
    assert [name for name in before if name.startswith("__Host-")]

    target = {"victim": origin(victim), "portal": portal.url, "id": victim.id, "terminal": terminal, "kernel": kernel}
    wait_until(
        "attack page", lambda: attacker.ask("/proxy/7777/attack.html", key=attacker.key()).status == 200, seconds=60
    )
    page.goto(f"{origin(attacker)}/proxy/7777/attack.html")
    found: dict[str, Any] = page.evaluate("(target) => attack(target)", target)
    print(json.dumps(found, indent=1))
    assert {name: got for name, got in found.items() if got != "refused"} == {}
    assert len(found) >= 20, "every attack was made"

    after = _cookies(context, victim)
    assert {name: value for name, value in after.items() if name.startswith("__Host-")} == {
        name: value for name, value in before.items() if name.startswith("__Host-")
    }
    assert [one["name"] for one in victim.ask("/api/terminals", key=key).json] == [terminal]
    assert [one["id"] for one in victim.ask("/api/kernels", key=key).json] == [kernel]
    names = [one["name"] for one in victim.ask("/api/contents", key=key).json["content"]]
    assert "secret.js" in names and not [name for name in names if "attack" in name or "Untitled" in name]
    item = victim.item()
    assert (item["state"], item["launch"], item["key_on_its_way"]) == ("running", 1, False)
    assert victim.key() == key
    verbs = [entry["verb"] for entry in portal.api("GET", "audit").json["items"] if entry.get("object_id") == victim.id]
    assert not {"instance.stop", "instance.rotate-key", "instance.delete"} & set(verbs)
    _enter(page, victim)  # and the person still gets in


def _enter(page: Page, instance: Entered) -> None:
    """As a person does it, from the portal's page."""
    page.goto(f"{instance.portal.url}/instances/{instance.id}")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open JupyterLab").click()
    opened.value.wait_for_url("**/lab**", timeout=120_000)
    opened.value.close()


def _cookies(context: BrowserContext, instance: Entered) -> dict[str, str]:
    return {one["name"]: one["value"] for one in context.cookies(origin(instance).replace("http:", "https:"))}


def test_forty_hostile_origins_open_no_web_socket_with_the_owners_cookie(victim: Entered) -> None:
    key, cookie = victim.key(), victim.cookie()
    terminal = victim.ask("/api/terminals", key=key, method="POST").json["name"]
    kernel = victim.ask("/api/kernels", key=key, method="POST", body={"name": "python3"}).json["id"]
    own = f"{victim.host}:{victim.portal.port}"
    paths = (f"/terminals/websocket/{terminal}", f"/api/kernels/{kernel}/channels", "/proxy/7778/socket")

    async def knock() -> tuple[list[str], list[int]]:
        opened, refused = [], []
        async with aiohttp.ClientSession() as session:
            for path in paths[:2]:
                await (await victim.socket(session, path, Cookie=cookie, Origin=f"http://{own}")).close()
            for path in paths:
                for one in hostile.origins(own):
                    try:
                        await (await victim.socket(session, path, Cookie=cookie, Origin=one)).close()
                        opened.append(f"{one} {path}")
                    except aiohttp.WSServerHandshakeError as error:
                        refused.append(error.status)
        return opened, refused

    opened, refused = in_a_loop(knock())
    assert opened == []
    assert len(refused) == 120
    assert set(refused) <= {403, 429}


def test_a_program_behind_jupyterlab_sees_neither_key_nor_cookie(victim: Entered) -> None:
    key, cookie = victim.key(), victim.cookie()
    for sent in ({"key": key}, {"cookie": f"a=1; {cookie}"}):
        answer = wait_until("echo", lambda sent=sent: _if_ok(victim, sent), seconds=60)
        assert "X-Forwarded" in answer
        assert key not in answer
        assert cookie.partition("=")[2] not in answer
        assert "Authorization" not in answer
    assert "a=1" in answer


def _if_ok(victim: Entered, sent: dict[str, str]) -> str:
    answer = victim.ask("/proxy/7778/", **sent)
    return answer.body.decode() if answer.status == 200 else ""


def test_forged_identity_headers_mean_nothing(portal: Portal, victim: Entered) -> None:
    for path in ("/api/status", "/lab", "/proxy/7778/"):
        assert portal.at_instance(victim.host, path, headers=FORGED).status == 403
    for path in ("/api/v1/instances", "/api/v1/audit"):
        answer = portal.api("GET", path.removeprefix("/api/v1/"), token="none")
        assert answer.status == 401
    assert portal.at_instance("127.0.0.1", "/api/v1/instances", headers=FORGED).status == 401


def test_a_ticket_enters_once_and_forged_headers_do_not_bring_it_back(victim: Entered) -> None:
    ticket = victim.ticket()
    assert victim.enter(ticket).status == 303
    assert victim.enter(ticket).status == 403
    assert victim.enter(ticket, headers=FORGED).status == 403
