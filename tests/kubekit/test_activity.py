"""What a look into an instance says, and what two of them say together (failure F48)."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from kubekit import activity
from kubekit.activity import CPU_SHARE, TICKS_PER_S, Look
from kubekit.errors import BadAnswer

KERNELS = json.dumps([["k1", "2026-01-01T00:00:00Z", "idle"], ["k2", "2026-01-01T00:00:01Z", "busy"]])
FULL = f"""cpu=4200
ssh=1
typed= 0:1700000000 1:1700000004
shown= 0:1700000001 1:1700000004
editor=1700000009
gpu=0 37
kernels={KERNELS}
terminals=[["1", "2026-01-01T00:00:00Z"]]
"""


class Pod:
    """Answers one command."""

    def __init__(self, code: int, output: str) -> None:
        self.answer = (code, output.encode(), b"sh: broken")
        self.commands: list[Any] = []

    async def run(self, namespace: str, pod: str, container: str, command: Any, **_: Any) -> tuple[int, bytes, bytes]:
        self.commands.append(command)
        return self.answer


def test_all_that_an_instance_tells_is_read() -> None:
    found = activity.parse(FULL)
    assert (found.cpu, found.ssh, found.gpu, found.busy, found.editor) == (4200, 1, 37, 1, "1700000009")
    assert activity.standing(found) == {"kernels", "ssh", "gpu"}


def test_an_image_without_python_or_terminals_tells_the_rest() -> None:
    found = activity.parse("cpu=1\nssh=0\n")
    assert found == Look(cpu=1, ssh=0)
    assert activity.activity(found, found, elapsed_s=300) == frozenset()


@pytest.mark.parametrize(
    "text",
    ["", "cpu=1\n", "cpu=x\nssh=0\n", "cpu=1\nssh=0\nkernels=?\n", "cpu=1\nssh=0\nkernels=[[1]]\n", "jupyter=silent\n",
     "cpu=1\nssh=0\njupyter=silent\n"],
)  # fmt: skip
def test_f48_what_is_not_all_there_is_no_look_at_all(text: str) -> None:
    with pytest.raises(BadAnswer):
        activity.parse(text)


def test_f48_a_command_that_fails_is_no_look() -> None:
    with pytest.raises(BadAnswer, match="exit code 127"):
        asyncio.run(activity.look(Pod(127, FULL), "ns", "pod", "main"))  # type: ignore[arg-type]


def test_a_gpu_that_cannot_say_its_use_is_left_out() -> None:
    assert activity.parse("cpu=1\nssh=0\ngpu=[N/A] \n").gpu is None


def test_marks_are_compared_as_texts_so_that_a_clock_that_went_back_is_a_change_too() -> None:
    before = activity.parse(FULL.replace("ssh=1", "ssh=0").replace("busy", "idle").replace("0 37", "0"))
    assert activity.activity(before, before, elapsed_s=300) == frozenset()
    earlier = replace(before, typed=" 0:1600000000 1:1700000004")
    assert activity.activity(before, earlier, elapsed_s=300) == {"terminals"}
    gone = replace(before, kernels="[]")
    assert activity.activity(before, gone, elapsed_s=300) == {"kernels"}


def test_what_only_one_look_knows_says_nothing_but_a_heartbeat_that_begins_is_one() -> None:
    bare, full = Look(cpu=1, ssh=0), Look(cpu=1, ssh=0, kernels="[]", typed="0:1", terminals="[]", busy=0)
    assert activity.activity(bare, full, elapsed_s=300) == frozenset()
    assert activity.activity(full, bare, elapsed_s=300) == frozenset()
    assert activity.activity(full, replace(full, editor="5"), elapsed_s=300) == {"editor"}


def test_cpu_counts_from_its_share_of_the_time_on_and_time_that_vanished_is_use() -> None:
    before = Look(cpu=1000, ssh=0)
    enough = round(CPU_SHARE * TICKS_PER_S * 300)
    assert activity.activity(before, Look(cpu=1000 + enough - 1, ssh=0), elapsed_s=300) == frozenset()
    assert activity.activity(before, Look(cpu=1000 + enough, ssh=0), elapsed_s=300) == {"cpu"}
    assert activity.activity(before, Look(cpu=999, ssh=0), elapsed_s=300) == {"cpu"}


def test_what_the_portal_writes_to_terminals_is_left_out_of_the_next_comparison_alone() -> None:
    before = Look(cpu=1, ssh=0, typed="0:1", shown="0:1", terminals="a")
    after = replace(before, shown="0:2", terminals="b")
    assert activity.activity(before, after, elapsed_s=300) == {"terminals"}
    assert activity.activity(before.before_a_message(), after, elapsed_s=300) == frozenset()
    assert activity.activity(before.before_a_message(), replace(after, typed="0:2"), elapsed_s=300) == {"terminals"}


@pytest.mark.parametrize("shell", [name for name in ("dash", "bash", "busybox") if shutil.which(name)])
def test_the_command_runs_in_every_kind_of_sh(shell: str) -> None:
    words = [shell, "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*words, "-c", activity._LOOK, "look", ""], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr) == (0, "")
    found = activity.parse("".join(line + "\n" for line in done.stdout.splitlines() if "jupyter" not in line))
    assert found.cpu is not None
    assert found.cpu > 0


def test_a_text_for_terminals_is_one_argument_whatever_is_in_it() -> None:
    pod = Pod(0, "")
    asyncio.run(activity.tell(pod, "ns", "pod", "main", "“x” $(touch /tmp/y); %s"))  # type: ignore[arg-type]
    assert pod.commands[0][-1] == "“x” $(touch /tmp/y); %s"
