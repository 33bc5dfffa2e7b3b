"""F48 and R53 on the running portal: what a look into a real instance finds, and an end that is warned of and comes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from typing import Any

import aiohttp
import psycopg
import pytest

from kubekit import activity
from kubekit.activity import CPU_SHARE, TICKS_PER_S, Look
from kubekit.streams import Streams
from mlportal.paths import Home
from tests.journeys.desk import Desk
from tests.journeys.entering import Entered
from tests.journeys.portal import Portal, wait_until
from tests.journeys.sinks import MailSink

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("portal")]
PACE_S = 300.0
WAIT_S = 90
ASKED = {
    "header": {"msg_id": "m", "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3"},
    "parent_header": {},
    "metadata": {},
    "content": {"code": "import time\ntime.sleep(3600)", "silent": False, "store_history": True},
    "channel": "shell",
}


@pytest.fixture(scope="module")
def rule(portal: Portal) -> Iterator[None]:
    """Idle instances of the team would be stopped, so that the portal's own loop looks; not before ten minutes."""
    _set_rule(portal, idle_minutes=10, warning_minutes=2)
    yield
    _set_rule(portal, idle_minutes=None, warning_minutes=None)


@pytest.fixture(scope="module")
def instance(portal: Portal, rule: None) -> Iterator[Entered]:
    found = Entered.launch(portal, "idle-one")
    yield found
    found.delete()


def look(instance: Entered) -> Look:
    async def use(streams: Streams, namespace: str, pod: str) -> Look:
        return await activity.look(streams, namespace, pod, "main")

    found: Look = instance.from_inside(use)
    return found


def going_on(before: Look, after: Look) -> frozenset[str]:
    """As if a pace lay between the two."""
    return activity.activity(before, after, elapsed_s=PACE_S)


def until_quiet(instance: Entered) -> Look:
    """A look after which nothing is found."""
    found: list[Look] = []

    def quiet() -> bool:
        before, after = look(instance), look(instance)
        found.append(after)
        return not going_on(before, after)

    wait_until("quiet in the instance", quiet, seconds=WAIT_S)
    return found[-1]


def until_seen(instance: Entered, before: Look, signal: str) -> frozenset[str]:
    """What is found once this signal is among it."""
    found: list[frozenset[str]] = []

    def seen() -> bool:
        found.append(going_on(before, look(instance)))
        return signal in found[-1]

    wait_until(f"{signal} that is noticed", seen, seconds=WAIT_S)
    return found[-1]


async def with_tabs(instance: Entered, kernel: str, terminal: str, use: Callable[[Any, Any], Any]) -> Any:
    """``use(notebook, shell)`` while a notebook and a terminal are open as a browser has them."""
    key = await asyncio.to_thread(instance.key)
    headers = {"Authorization": f"token {key}"}
    async with aiohttp.ClientSession() as session:
        shell = await instance.socket(session, f"/terminals/websocket/{terminal}", **headers)
        notebook = await instance.socket(session, f"/api/kernels/{kernel}/channels", **headers)
        return await use(notebook, shell)


def test_f48_open_tabs_are_idle_and_a_cell_that_computes_and_a_terminal_that_is_used_are_not(
    instance: Entered,
) -> None:
    key = instance.key()
    assert look(instance).kernels == "[]"
    kernel = instance.ask("/api/kernels", key=key, method="POST", body={"name": "python3"}).json["id"]
    terminal = instance.ask("/api/terminals", key=key, method="POST").json["name"]

    async def use(notebook: Any, shell: Any) -> None:
        idle = await asyncio.to_thread(until_quiet, instance)  # both tabs are open, and that alone is nothing
        assert idle.busy == 0
        await shell.send_json(["stdin", "echo here\r"])
        assert "terminals" in await asyncio.to_thread(until_seen, instance, idle, "terminals")
        idle = await asyncio.to_thread(until_quiet, instance)
        await notebook.send_str(json.dumps(ASKED))
        # It sleeps: no CPU, no output, and yet it is at work.
        assert "kernels" in await asyncio.to_thread(until_seen, instance, idle, "kernels")
        await asyncio.to_thread(wait_until, "busy kernel", lambda: look(instance).busy == 1, seconds=WAIT_S)

    asyncio.run(with_tabs(instance, kernel, terminal, use))
    assert "kernels" in activity.standing(look(instance))  # nobody looks on, and the cell still runs
    assert instance.ask(f"/api/kernels/{kernel}", key=instance.key(), method="DELETE").status == 204
    until_quiet(instance)


def test_f48_a_program_in_the_background_that_computes_is_no_idleness(instance: Entered) -> None:
    before = until_quiet(instance)
    assert before.cpu is not None
    burn = "nohup /bin/sh -c 'while :; do :; done' > /dev/null 2>&1 & echo $!"
    pid = instance.run("/bin/sh", "-c", burn).strip()
    enough = CPU_SHARE * TICKS_PER_S * 20
    wait_until("time that it used", lambda: (look(instance).cpu or 0) - before.cpu >= enough, seconds=WAIT_S)
    assert "cpu" in activity.activity(before, look(instance), elapsed_s=20)
    instance.run("/bin/sh", "-c", f"kill {pid}")
    until_quiet(instance)


def test_f48_an_open_ssh_session_is_no_idleness(
    portal: Portal, instance: Entered, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desk = Desk(portal, tmp_path_factory.mktemp("idle-desk"))
    desk.portalctl("key", "add", str(desk.folder / "mine.pub"), "--name", "of-the-idle-desk")
    desk.configure()
    desk.wait_for("idle-one")
    wait_until("no SSH session", lambda: look(instance).ssh == 0, seconds=WAIT_S)
    with subprocess.Popen(["ssh", *desk.options(), "-N", "idle-one"]) as session:
        try:
            wait_until("an SSH session", lambda: "ssh" in activity.standing(look(instance)), seconds=WAIT_S)
        finally:
            session.terminate()
            session.wait(timeout=WAIT_S)
    wait_until("the end of the session", lambda: look(instance).ssh == 0, seconds=WAIT_S)
    desk.portalctl("key", "delete", "of-the-idle-desk", "--yes")


def test_f48_the_portal_itself_looks_into_it_and_rest_tells_what_it_found(instance: Entered) -> None:
    wait_until("look of the portal", lambda: _life(instance)["looked_at"], seconds=2 * WAIT_S)
    life = _life(instance)
    assert (life["problem"], life["idle_limit_s"], life["warned_for"]) == ("", 600, "")


def test_an_end_is_warned_of_by_rest_mail_and_in_the_terminal_kept_off_and_comes_at_last_with_its_reason(
    portal: Portal, instance: Entered, mail: MailSink
) -> None:
    _set_rule(portal, idle_minutes=None, warning_minutes=None)  # a warning stands for a quarter of an hour again
    admin = next(one for one in portal.api("GET", "users").json["items"] if one["name"] == "admin")
    _sql(portal, "UPDATE tenants_user SET email = 'owner@example.com' WHERE id = %s", admin["id"])
    terminal = instance.ask("/api/terminals", key=instance.key(), method="POST").json["name"]

    async def shown() -> str:
        headers = {"Authorization": f"token {await asyncio.to_thread(instance.key)}"}
        async with aiohttp.ClientSession() as session:
            shell = await instance.socket(session, f"/terminals/websocket/{terminal}", **headers)
            await asyncio.to_thread(_set_end, instance, timedelta(minutes=1))
            text = ""
            async with asyncio.timeout(WAIT_S):
                while "will be stopped" not in text:
                    kind, *data = json.loads((await shell.receive()).data)
                    text += data[0] if kind == "stdout" else ""
            return text

    assert "idle-one" in asyncio.run(shown())
    life = _life(instance)
    assert life["warned_for"] == "lease"
    assert datetime.fromisoformat(life["stops_at"]) > datetime.fromisoformat(life["ends_at"])  # not without its time
    wait_until("mail", lambda: [one for one in mail.messages if _is_of(one, instance)], seconds=WAIT_S)
    until = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    assert portal.api("POST", f"instances/{instance.id}/keep", {"until": until}).status == 200
    assert _life(instance)["warned_for"] == ""
    assert instance.item()["state"] == "running"
    # The time for which a warning stands, and the end, are taken as over.
    over = "ends_at = now(), keep_until = NULL, warned_for = 'lease', warned_s = 900"
    _sql(portal, f"UPDATE instances_lifetime SET {over} WHERE instance_id = %s", instance.id)
    wait_until("stop", lambda: instance.item()["state"] == "stopped", seconds=WAIT_S)
    reason = instance.item()["reason"]
    assert reason["code"] == "stopped_at_end"


def _set_rule(portal: Portal, **values: int | None) -> None:
    team = next(one["id"] for one in portal.api("GET", "teams").json["items"] if one["name"] == "default")
    answer = portal.api("PATCH", f"teams/{team}/lifetime", values)
    assert answer.status == 200, answer.body


def _life(instance: Entered) -> Any:
    return instance.item()["lifetime"]


def _is_of(message: Message, instance: Entered) -> bool:
    text = message.get_payload(decode=True)
    assert isinstance(text, bytes)
    return message["To"] == "owner@example.com" and f"/instances/{instance.id}" in text.decode()


def _set_end(instance: Entered, away: timedelta) -> None:
    at = (datetime.now(UTC) + away).isoformat()
    answer = instance.portal.api("POST", f"instances/{instance.id}/end", {"at": at})
    assert answer.status == 200, answer.body


def _sql(portal: Portal, statement: str, *values: Any) -> None:
    run = str(Home(root=portal.home).run)
    with psycopg.connect(host=run, user="mlportal", dbname="mlportal", autocommit=True) as link:
        link.execute(statement, values)
