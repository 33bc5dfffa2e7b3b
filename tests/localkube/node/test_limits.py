"""Memory and CPU limits: hard with cgroups, soft by sampling; both on the same programs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from localkube.node import limits
from localkube.node.limits import CgroupV1, CgroupV2, SoftLimits
from tests.localkube.node.support import Node, leftovers, main_state

GREEDY = """
import time
held = []
while True:
    held.append(bytearray(4 * 1024 * 1024))
    time.sleep(0.01)
"""


@pytest.fixture(params=["hard", "soft"])
async def limited(request: pytest.FixtureRequest, node: Node) -> Node:
    """A node in each mode; a machine that cannot be hard is tested soft both times, as its pods would be."""
    if request.param == "soft":
        await node.kubelet.context.limits.close()
        node.kubelet.context.limits = SoftLimits(interval_s=0.2)
    return node


async def test_a_program_over_its_memory_limit_is_oom_killed(limited: Node) -> None:
    pod = limited.create(GREEDY, resources={"limits": {"memory": "64Mi"}})
    done = await limited.finished(pod)
    ended = main_state(done)["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    assert any(reason == "OOMKilling" and "64Mi" in text for reason, text in limited.events(pod))


async def test_a_program_that_outlives_a_killed_child_is_not_called_oom_killed(node: Node) -> None:
    script = f"""
import subprocess, sys
child = subprocess.run([sys.executable, '-c', {GREEDY!r}])
print(child.returncode)
"""
    pod = node.create(script, resources={"limits": {"memory": "64Mi"}})
    done = await node.finished(pod)
    if node.kubelet.context.limits.hard and not list(Path("/sys/fs/cgroup").glob("cgroup.controllers")):  # noqa: ASYNC240
        assert await node.log(pod) == "-9\n"
        assert main_state(done)["terminated"]["reason"] == "Completed"
    else:  # version 2 and soft limits kill the whole container
        assert main_state(done)["terminated"]["reason"] == "OOMKilled"


async def test_a_program_below_its_limit_lives(limited: Node) -> None:
    script = "import time; held = bytearray(20 * 1024 * 1024); time.sleep(0.6); print(len(held))"
    assert await limited.output(script, resources={"limits": {"memory": "128Mi"}}) == "20971520\n"


async def test_an_exec_counts_against_the_containers_memory(limited: Node) -> None:
    pod = limited.create("import time; time.sleep(60)", resources={"limits": {"memory": "64Mi"}})
    await limited.running(pod)
    code, _ = await limited.exec(pod, "python3", "-c", GREEDY)
    assert code == 137


async def test_half_a_core_is_half_a_core_where_limits_are_hard(node: Node) -> None:
    script = """
import time
end = time.monotonic() + 1.0
while time.monotonic() < end: pass
print(time.process_time())
"""
    used = float(await node.output(script, resources={"limits": {"cpu": "500m"}}))
    assert used < (0.75 if node.kubelet.context.limits.hard else 1.1)


async def test_the_best_that_works_here_is_chosen_and_leaves_nothing(tmp_path: Path) -> None:
    found = limits.detect(tmp_path)
    assert found.hard == isinstance(found, CgroupV1 | CgroupV2)
    if os.geteuid():
        assert isinstance(found, SoftLimits)
    await found.close()
    assert leftovers(tmp_path) == []


class FakeTree:
    """A cgroup hierarchy of plain files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("memory", "cpu", "pids"):
            (root / name / "lk").mkdir(parents=True)
        (root / "memory" / "lk" / "memory.limit_in_bytes").touch()


def test_version_1_writes_each_controllers_own_file(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path)
    made = CgroupV1("lk", tree.root)
    leaf = tmp_path / "memory" / "lk" / "c"
    leaf.mkdir()
    group = made.group("c", memory=2**26, cpu_milli=250)
    assert (leaf / "memory.limit_in_bytes").read_text() == str(2**26)
    assert (tmp_path / "cpu" / "lk" / "c" / "cpu.cfs_quota_us").read_text() == "25000"
    (leaf / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert not group.oom_killed()
    (leaf / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert group.oom_killed()


def test_version_2_gives_its_controllers_on_and_kills_the_whole_container(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    made = CgroupV2("lk", tmp_path)
    group = made.group("c", memory=2**26, cpu_milli=1500)
    leaf = tmp_path / "lk" / "c"
    assert (tmp_path / "lk" / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"
    assert (leaf / "memory.max").read_text() == str(2**26)
    assert (leaf / "memory.oom.group").read_text() == "1"
    assert (leaf / "cpu.max").read_text() == "150000 100000"
    (leaf / "memory.events").write_text("low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n")
    assert group.oom_killed()


async def test_soft_limits_sleep_when_there_is_nothing_to_watch() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    soft = SoftLimits(sleep=sleep)
    group = soft.group("a", memory=None, cpu_milli=None)
    group.add(os.getpid())
    begun = time.monotonic()
    await soft.close()
    assert slept == []
    assert time.monotonic() - begun < 1
