"""R46 on the running portal: a new key kills the old one at once, kernels and terminals go on, and no key is seen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from kubekit.client import Cluster
from kubekit.credentials import parse_kubeconfig
from kubekit.streams import Streams
from tests.journeys.entering import Entered
from tests.journeys.portal import Portal, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("portal")]

WATCH_ARGUMENTS = """
for round in $(seq 2000); do
  for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $one; echo; done
  [ -e /tmp/enough ] && exit
done > /tmp/seen
"""


@pytest.fixture(scope="module")
def instance(portal: Portal) -> Iterator[Entered]:
    found = Entered.launch(portal, "keyed")
    yield found
    found.delete()


def rotate(instance: Entered) -> str:
    """Ask for a new key; the new one, once the old one is dead."""
    asked = instance.portal.api("POST", f"instances/{instance.id}/rotate-key")
    assert asked.status == 202, asked.body
    wait_until("new key in the program", lambda: not instance.item()["key_on_its_way"], seconds=60, every=0.05)
    return instance.key()


def test_a_new_key_kills_the_old_one_and_its_cookies_while_kernels_and_terminals_go_on(instance: Entered) -> None:
    old, cookie = instance.key(), instance.cookie()
    kernel = instance.ask("/api/kernels", key=old, method="POST", body={"name": "python3"}).json["id"]
    terminal = instance.ask("/api/terminals", key=old, method="POST").json["name"]

    async def watched() -> tuple[Any, str]:
        """With a terminal open under the old cookie while the key changes."""
        async with aiohttp.ClientSession() as session:
            socket = await instance.socket(session, f"/terminals/websocket/{terminal}", Cookie=cookie)
            await socket.send_json(["stdin", "life=$((40+2))\r"])
            new = await asyncio.to_thread(rotate, instance)
            async with asyncio.timeout(90):
                while (message := await socket.receive()).type != aiohttp.WSMsgType.CLOSE:
                    assert message.type == aiohttp.WSMsgType.TEXT
            return message.data, new

    closed_with, new = asyncio.run(watched())
    assert closed_with == 4403
    assert new != old
    assert instance.ask("/api/status", key=new).status == 200
    assert instance.ask("/api/status", key=old).status == 403
    assert instance.ask("/api/me", cookie=cookie).status == 403
    assert instance.ask("/api/me", cookie=instance.cookie()).status == 200
    assert [one["id"] for one in instance.ask("/api/kernels", key=new).json] == [kernel]

    async def go_on() -> str:
        async with aiohttp.ClientSession() as session:
            socket = await instance.socket(session, f"/terminals/websocket/{terminal}", Authorization=f"token {new}")
            await socket.send_json(["stdin", "echo still-$life-here\r"])
            text = ""
            async with asyncio.timeout(90):
                while "still-42-here" not in text:
                    kind, *data = json.loads((await socket.receive()).data)
                    text += data[0] if kind == "stdout" else ""
            return text

    assert "still-42-here" in asyncio.run(go_on())


def test_no_key_stands_in_an_argument_a_variable_a_log_or_an_event(instance: Entered) -> None:
    portal, keys = instance.portal, [instance.key()]
    instance.run("/bin/sh", "-c", 'nohup /bin/sh -c "$1" > /dev/null 2>&1 &', "watch", WATCH_ARGUMENTS)
    wait_until("look at the arguments", lambda: "jupyter-lab" in instance.run("cat", "/tmp/seen"), seconds=60)
    keys += [rotate(instance) for _ in range(3)]
    assert len(set(keys)) == 4
    instance.run("touch", "/tmp/enough")
    seen = instance.run("/bin/sh", "-c", "cat /tmp/seen; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")
    assert "jupyter-lab" in seen
    assert "MLPORTAL_INSTANCE_ID" in seen
    cluster = Cluster(parse_kubeconfig((portal.home / "localkube" / "kubeconfig").read_text()))
    namespace = portal.api("GET", "queues").json["items"][0]["namespace"]
    events = json.dumps(list(cluster.list("Event", namespace)))
    logs = [path for path in (portal.home / "log").rglob("*") if path.is_file()]
    assert logs
    texts = [seen, events, portal.log.read_text(errors="replace"), instance.run("/bin/sh", "-c", "cat /proc/1/cmdline")]
    texts += [path.read_text(errors="replace") for path in logs]
    texts += [_pod_log(cluster, namespace, instance), json.dumps(portal.api("GET", "audit").json)]
    for key in keys:
        assert not [text[:200] for text in texts if key in text]


def _pod_log(cluster: Cluster, namespace: str, instance: Entered) -> str:
    pods = [pod["metadata"]["name"] for pod in cluster.list("Pod", namespace) if instance.id in json.dumps(pod)]
    return "".join(cluster.log_tail(namespace, pod, "main", tail_lines=10_000).decode() for pod in pods)


def test_at_a_stop_the_key_is_dead_for_those_inside_the_cluster_too_while_the_pod_still_takes_its_time(
    instance: Entered,
) -> None:
    key = instance.key()
    kernel = instance.ask("/api/kernels", key=key, method="POST", body={"name": "python3"}).json["id"]
    _make_stubborn(instance, key, kernel)

    async def stop_and_knock(streams: Streams, namespace: str, pod: str) -> list[tuple[float, int]]:
        async with streams.port_forward(namespace, pod, 8888) as tunnel:
            assert await instance.knock(tunnel, key) == 200
            answer = await asyncio.to_thread(instance.portal.api, "POST", f"instances/{instance.id}/stop")
            assert answer.status == 202
            begun, found = time.monotonic(), []
            while not found or found[-1][1]:
                status = await instance.knock(tunnel, key)
                found.append((time.monotonic() - begun, status))
                await asyncio.sleep(0.05)
            return found

    knocks = instance.from_inside(stop_and_knock)
    refused = [at for at, status in knocks if status == 403]
    assert refused, "the program still answers while it ends"
    last_in = max((at for at, status in knocks if status == 200), default=0.0)
    assert last_in < refused[0]
    print(f"open for {last_in:.2f} s after the stop, then refused until the end at {knocks[-1][0]:.2f} s")


def _make_stubborn(instance: Entered, key: str, kernel: str) -> None:
    """A kernel that is busy and ends for nobody, so that the pod uses its grace period."""

    async def busy() -> None:
        code = "import signal, time\nfor one in (2, 15): signal.signal(one, signal.SIG_IGN)\nwhile True: time.sleep(1)"
        header = {"msg_id": "1", "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        async with aiohttp.ClientSession() as session:
            path = f"/api/kernels/{kernel}/channels?session_id=s"
            socket = await instance.socket(session, path, Authorization=f"token {key}")
            await socket.send_json(message)
            async with asyncio.timeout(90):
                while json.loads((await socket.receive()).data)["content"].get("execution_state") != "busy":
                    pass

    asyncio.run(busy())
