"""localkube is killed, or stopped, and started again: what happens to its pods."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.localkube.node.support import FAST, Node, leftovers, main_state

FOREVER = "import os, time; print('up', os.getpid()); time.sleep(600)"
TICKS = """
import time
for n in range(400): print(n); time.sleep(0.05)
"""


class Doomed:
    """The process of tests.localkube.node.doomed."""

    def __init__(self, home: Path, process: asyncio.subprocess.Process) -> None:
        self.home, self.process = home, process

    async def end(self, number: int) -> None:
        self.process.send_signal(number)
        await self.process.wait()


@pytest.fixture
def doomed(tmp_path: Path, images: Path, image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("LOCALKUBE_IMAGE_CACHE", str(image_cache))
    root = Path(__file__).parents[3]

    async def start(*pods: tuple[str, str], orphan_s: float = 30.0) -> Doomed:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.localkube.node.doomed",
            str(tmp_path),
            str(images),
            str(orphan_s),
            json.dumps(pods),
            stdout=asyncio.subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}:{root}/platform"},
        )
        assert process.stdout
        assert await asyncio.wait_for(process.stdout.readline(), 90) == b"running\n"
        return Doomed(tmp_path, process)

    return start


@pytest.fixture
async def again(tmp_path: Path, images: Path) -> AsyncIterator[Callable[[], Any]]:
    """Starts a node on the same home, in this process."""
    started: list[Node] = []

    async def start() -> Node:
        node = Node(tmp_path, images, FAST)
        started.append(node)
        await node.start()
        return node

    yield start
    for node in started:
        await node.stop()
    assert leftovers(tmp_path) == []


def pods_of(node: Node) -> list[Any]:
    return node.store.list("pods")[0]


def restarts(pod: Any) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def agents(home: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(home / "pods") in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


async def test_a_killed_localkube_finds_its_pods_running_and_reads_on(doomed: Any, again: Any) -> None:
    first = await doomed((TICKS, "Never"), (FOREVER, "Always"))
    before = sorted(agents(first.home))
    await first.end(signal.SIGKILL)
    node = await again()
    ticking, forever = pods_of(node)
    await asyncio.sleep(0.3)
    assert sorted(agents(first.home)) == before
    for pod in (ticking, forever):
        status = node.now(pod)["status"]["containerStatuses"][0]
        assert "running" in status["state"]
        assert status["restartCount"] == 0
    lines = (await node.log(ticking)).split()
    assert [int(line) for line in lines] == list(range(len(lines)))  # nothing lost, nothing twice
    assert (await node.exec(forever, "python3", "-c", "print(7)")) == (0, "7\n")
    node.store.delete("pods", "default", forever["metadata"]["name"])
    await node.until(forever, lambda p: p is None)


async def test_a_pod_found_running_restarts_from_the_image_it_began_with(doomed: Any, again: Any, images: Path) -> None:
    first = await doomed(("import time; time.sleep(1.5); raise SystemExit(1)", "Always"))
    await first.end(signal.SIGKILL)
    kept = images.read_text()  # noqa: ASYNC240
    # The table changes meanwhile.
    images.write_text(kept.replace("test/python:1", "other:1"))  # noqa: ASYNC240
    try:
        node = await again()
        (pod,) = pods_of(node)
        await node.until(pod, lambda p: restarts(p) == 1 and "running" in main_state(p))
    finally:
        images.write_text(kept)  # noqa: ASYNC240


async def test_an_end_while_localkube_was_away_is_known_exactly(doomed: Any, again: Any) -> None:
    first = await doomed(("import time; time.sleep(0.5); raise SystemExit(7)", "Never"))
    await first.end(signal.SIGKILL)
    await asyncio.sleep(0.8)
    node = await again()
    (pod,) = pods_of(node)
    done = await node.finished(pod)
    assert main_state(done)["terminated"]["exitCode"] == 7
    assert done["status"]["phase"] == "Failed"


async def test_after_everything_was_killed_pods_go_on_by_their_restart_policy(doomed: Any, again: Any) -> None:
    first = await doomed((FOREVER, "Always"), (FOREVER, "Never"))
    victims = agents(first.home)
    await first.end(signal.SIGKILL)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    node = await again()
    always, never = pods_of(node)
    await node.until(always, lambda p: restarts(p) == 1 and "running" in main_state(p))
    done = await node.finished(never)
    assert (done["status"]["phase"], done["status"]["reason"]) == ("Failed", "Terminated")
    assert main_state(done)["terminated"]["exitCode"] == 137
    assert any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in done["status"]["conditions"])


async def test_pods_of_a_localkube_that_does_not_come_back_end_themselves(doomed: Any, again: Any) -> None:
    first = await doomed((FOREVER, "Always"), (FOREVER, "Never"), orphan_s=0.5)
    await first.end(signal.SIGKILL)
    deadline = time.monotonic() + 90
    while agents(first.home):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    # Empty control groups and dead sockets wait for the next start: nobody is left who might remove them.
    assert [entry for entry in leftovers(first.home) if not entry.startswith(("control group", "socket"))] == []
    node = await again()
    always, never = pods_of(node)
    await node.until(always, lambda p: restarts(p) == 1)
    assert (await node.finished(never))["status"]["reason"] == "Terminated"


async def test_a_stop_in_order_leaves_nothing_and_the_next_start_goes_on(doomed: Any, again: Any) -> None:
    first = await doomed((FOREVER, "Always"), (FOREVER, "Never"))
    await first.end(signal.SIGTERM)
    assert leftovers(first.home) == []
    node = await again()
    always, never = pods_of(node)
    await node.until(always, lambda p: restarts(p) == 1 and "running" in main_state(p))
    assert never["status"]["phase"] == "Failed"
    assert never["status"]["message"] == "Pod was terminated in response to imminent node shutdown."


async def test_pods_that_the_store_lost_are_ended(doomed: Any, again: Any, tmp_path: Path) -> None:
    first = await doomed((FOREVER, "Always"))
    await first.end(signal.SIGKILL)
    for file in tmp_path.glob("store.db*"):  # noqa: ASYNC240
        file.unlink()
    node = await again()
    assert pods_of(node) == []
    assert agents(first.home) == []
    assert list((tmp_path / "pods").iterdir()) == []
