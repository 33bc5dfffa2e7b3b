"""Lives of pods: phases, exit codes, restarts, grace, deadlines, as the kubelet writes them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.localkube.node.support import Node, main_state


async def said(node: Node, pod: Any, text: str) -> None:
    """Until the pod has printed this line."""
    await node.running(pod)
    while f"{text}\n" not in await node.log(pod):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_a_pod_runs_to_its_end_and_its_log_stays(node: Node) -> None:
    pod = node.create("print(6 * 7)")
    done = await node.finished(pod)
    assert done["status"]["phase"] == "Succeeded"
    assert main_state(done)["terminated"]["reason"] == "Completed"
    assert await node.log(pod) == "42\n"
    reasons = [reason for reason, _ in node.events(pod)]
    assert set(reasons) - {"Pulling"} == {"Pulled", "Created", "Started"}


async def test_a_nonzero_exit_fails_the_pod_with_its_code_and_last_words(node: Node) -> None:
    pod = node.create(
        "import sys; print('about to fail'); sys.exit(3)", terminationMessagePolicy="FallbackToLogsOnError"
    )
    ended = main_state(await node.finished(pod))["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "about to fail\n")


async def test_the_termination_message_file_wins(node: Node) -> None:
    pod = node.create("open('/dev/termination-log', 'w').write('because')")
    assert main_state(await node.finished(pod))["terminated"]["message"] == "because"


async def test_a_program_that_does_not_exist_says_so(node: Node) -> None:
    pod = node.create(command=["no-such-program"])
    ended = main_state(await node.finished(pod))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert 'exec: "no-such-program": executable file not found in $PATH' in ended["message"]


async def test_always_restarts_with_back_off(node: Node) -> None:
    pod = node.create("raise SystemExit(1)", spec={"restartPolicy": "Always"})
    looping = await node.until(pod, lambda p: main_state(p).get("waiting", {}).get("reason") == "CrashLoopBackOff")
    status = looping["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1  # the first restart is at once
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert "restarting failed container=main" in status["state"]["waiting"]["message"]
    assert looping["status"]["phase"] == "Running"
    await node.until(pod, lambda p: p["status"]["containerStatuses"][0]["restartCount"] >= 2)
    assert await node.log(pod, previous=True) == ""


async def test_a_crash_loop_keeps_the_log_of_one_earlier_run(node: Node) -> None:
    pod = node.create("print('once'); raise SystemExit(1)", spec={"restartPolicy": "Always"})
    await node.running(pod)
    await node.until(pod, lambda p: p["status"]["containerStatuses"][0]["restartCount"] >= 3)
    state = node.home / "pods" / pod["metadata"]["uid"] / "state"
    assert len(list(state.glob("main.*.log"))) == 2
    assert await node.log(pod, previous=True) == "once\n"


async def test_on_failure_ends_at_the_first_success(node: Node) -> None:
    script = "import os; n = len(os.listdir('/data')); open(f'/data/{n}', 'w'); raise SystemExit(n < 2)"
    spec = {"restartPolicy": "OnFailure", "volumes": [{"name": "d", "emptyDir": {}}]}
    pod = node.create(script, spec=spec, volumeMounts=[{"name": "d", "mountPath": "/data"}])
    done = await node.finished(pod)
    assert done["status"]["phase"] == "Succeeded"
    assert done["status"]["containerStatuses"][0]["restartCount"] == 2


async def test_deletion_sends_sigterm_and_waits_for_the_grace_period(node: Node) -> None:
    script = """
import signal, sys, time
def bye(*_):
    print('tidying up'); time.sleep(0.3); print('done'); sys.exit(5)
signal.signal(signal.SIGTERM, bye)
print('up')
time.sleep(60)
"""
    pod = node.create(script)
    pod["metadata"]["finalizers"] = ["test/keep"]
    node.store.update("pods", pod)
    await said(node, pod, "up")
    node.store.delete("pods", "default", pod["metadata"]["name"])
    done = await node.finished(pod)
    assert main_state(done)["terminated"]["exitCode"] == 5
    assert await node.log(pod) == "up\ntidying up\ndone\n"  # kept: the finalizer holds the object, and so the log
    assert ("Killing", "Stopping container main") in node.events(pod)
    kept = node.store.get("pods", "default", pod["metadata"]["name"])
    kept["metadata"]["finalizers"] = []
    node.store.update("pods", kept)
    await node.until(pod, lambda p: p is None)


async def test_a_program_that_ignores_sigterm_is_killed_when_the_grace_is_over(node: Node) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"
    pod = node.create(script, spec={"terminationGracePeriodSeconds": 1})
    await said(node, pod, "up")
    begun = time.monotonic()
    node.store.delete("pods", "default", pod["metadata"]["name"])
    await node.until(pod, lambda p: p is None)
    assert 0.8 < time.monotonic() - begun < 20.0


async def test_a_forced_deletion_shortens_a_running_grace_period(node: Node) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"
    pod = node.create(script, spec={"terminationGracePeriodSeconds": 30})
    await said(node, pod, "up")
    node.store.delete("pods", "default", pod["metadata"]["name"])
    await asyncio.sleep(0.1)
    node.store.delete("pods", "default", pod["metadata"]["name"], grace_period_s=0)
    await node.until(pod, lambda p: p is None, timeout_s=20.0)  # far less than the 30 s of grace


async def test_the_active_deadline_fails_the_pod(node: Node) -> None:
    pod = node.create("import time; time.sleep(60)", spec={"activeDeadlineSeconds": 1})
    done = await node.finished(pod)
    assert done["status"]["phase"] == "Failed"
    assert done["status"]["reason"] == "DeadlineExceeded"
    assert done["status"]["message"] == "Pod was active on the node longer than the specified deadline"


async def test_an_unknown_image_backs_off_with_the_registrys_words(node: Node) -> None:
    pod = node.create(image="nosuch:1")
    await node.until(pod, lambda p: main_state(p).get("waiting", {}).get("reason") == "ErrImagePull")
    waiting = await node.until(pod, lambda p: main_state(p).get("waiting", {}).get("reason") == "ImagePullBackOff")
    assert "docker.io/library/nosuch:1: not found" in main_state(waiting)["waiting"]["message"]
    assert waiting["status"]["phase"] == "Pending"
    reasons = [reason for reason, _ in node.events(pod)]
    assert set(reasons) == {"Pulling", "Failed", "BackOff"}
    node.store.delete("pods", "default", pod["metadata"]["name"])
    await node.until(pod, lambda p: p is None)


async def test_a_policy_of_never_builds_no_image(node: Node) -> None:
    pod = node.create(image="nosuch:1", imagePullPolicy="Never")
    stuck = await node.until(pod, lambda p: main_state(p).get("waiting", {}).get("reason") == "ErrImageNeverPull")
    assert main_state(stuck)["waiting"]["message"].endswith("is not present with pull policy of Never")
    node.store.delete("pods", "default", pod["metadata"]["name"])
    await node.until(pod, lambda p: p is None)


async def test_the_environment_has_fields_and_references(node: Node) -> None:
    env = [
        {"name": "A", "value": "x"},
        {"name": "B", "value": "$(A)y$$(A)"},
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    pod = node.create(
        "import os; e = os.environ; print(e['B'], e['WHO'], e['IP'], e['HOME'], os.getcwd(), os.getuid())",
        env=env,
    )
    address = (await node.finished(pod))["status"]["podIP"]
    assert address.startswith("127.")
    assert await node.log(pod) == f"xy$(A) {pod['metadata']['name']} {address} /root /root 1000\n"
