"""Data of pods: claims that outlive pods and are limited, projected files that follow their source, memory."""

from __future__ import annotations

import asyncio
import base64
import shutil
from typing import Any

import pytest

from localkube.node.volumes import Volumes
from tests.localkube.node.support import Node, main_state

HOME = [{"name": "home", "mountPath": "/root"}]


def home(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}]}


@pytest.fixture(params=["images", "folders"])
def stored(request: pytest.FixtureRequest, node: Node) -> Node:
    """A node whose claims are image files where the machine can, and one whose claims are folders."""
    if request.param == "folders":
        node.kubelet.context.volumes.images = False
    return node


async def test_a_claim_outlives_its_pods(stored: Node) -> None:
    stored.claim("data")
    await stored.output("open('/root/x', 'w').write('kept')", spec=home("data"), volumeMounts=HOME)
    assert await stored.output("print(open('/root/x').read())", spec=home("data"), volumeMounts=HOME) == "kept\n"


async def test_two_pods_share_a_claim_at_the_same_time(stored: Node) -> None:
    stored.claim("data")
    writer = stored.create(
        "import time; open('/root/x', 'w').write('seen'); print('up'); time.sleep(30)",
        spec=home("data"),
        volumeMounts=HOME,
    )
    await stored.running(writer)
    while "up" not in await stored.log(writer):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert await stored.output("print(open('/root/x').read())", spec=home("data"), volumeMounts=HOME) == "seen\n"


async def test_a_full_volume_answers_no_space_or_refuses_the_next_start(stored: Node) -> None:
    stored.claim("small", "8Mi")
    script = """
try:
    with open('/root/big', 'wb') as file:
        for _ in range(16): file.write(bytes(range(256)) * 4096); file.flush()
    print('all written')
except OSError as error:
    print(error.errno)
"""
    text = await stored.output(script, spec=home("small"), volumeMounts=HOME)
    if stored.kubelet.context.volumes.images:
        assert text == "28\n"  # ENOSPC
        return
    assert text == "all written\n"
    pod = stored.create("print('never')", spec=home("small"), volumeMounts=HOME)
    waiting = await stored.until(pod, lambda p: any(r == "FailedMount" for r, _ in stored.events(p)))
    assert "more than its size" in dict(stored.events(pod))["FailedMount"]
    assert main_state(waiting)["waiting"]["reason"] == "ContainerCreating"
    stored.store.delete("pods", "default", pod["metadata"]["name"])
    await stored.until(pod, lambda p: p is None)


async def test_no_pod_starts_when_the_disk_under_its_image_is_all_but_full(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not node.kubelet.context.volumes.images:
        return  # a folder answers ENOSPC by itself
    real, free = shutil.disk_usage, [100 << 20]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=free[0]))
    node.claim("data")
    pod = node.create("print('up')", spec=home("data"), volumeMounts=HOME)
    waiting = await node.until(pod, lambda p: any(r == "FailedMount" for r, _ in node.events(p)))
    assert "100 MiB are free where volumes lie" in dict(node.events(pod))["FailedMount"]
    assert main_state(waiting)["waiting"]["reason"] == "ContainerCreating"
    assert not (node.home / "volumes" / "pv-data.img").exists()
    free[0] = 1 << 30
    await node.until(pod, lambda p: p["status"]["phase"] == "Succeeded")


async def test_a_claim_that_grew_is_larger_at_the_next_start(node: Node) -> None:
    node.claim("grow", "8Mi")
    script = "import os; s = os.statvfs('/root'); print(s.f_blocks * s.f_frsize // 2**20)"
    await node.output(script, spec=home("grow"), volumeMounts=HOME)
    claim = node.store.get("persistentvolumeclaims", "default", "grow")
    claim["spec"]["resources"]["requests"]["storage"] = "32Mi"
    node.store.update("persistentvolumeclaims", claim)
    size = int(await node.output(script, spec=home("grow"), volumeMounts=HOME))
    assert size > 24


async def test_the_data_goes_with_its_volume(stored: Node) -> None:
    stored.claim("data")
    await stored.output("open('/root/x', 'w')", spec=home("data"), volumeMounts=HOME)
    folder = stored.home / "volumes"
    assert len(list(folder.iterdir())) == 1
    stored.store.delete("persistentvolumes", None, "pv-data")
    while list(folder.iterdir()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_data_of_unknown_volumes_goes_at_the_next_start(node: Node) -> None:
    folder = node.home / "volumes"
    (folder / "pv-lost").mkdir()
    Volumes(node.store, folder, images=False).keep_only({"pv-known"})
    assert list(folder.iterdir()) == []


async def test_a_secret_is_mounted_as_files_and_follows_its_object(node: Node) -> None:
    secret = node.store.create(
        "secrets", {"metadata": {"name": "s", "namespace": "default"}, "data": {"key": base64.b64encode(b"1").decode()}}
    )
    spec = {"volumes": [{"name": "s", "secret": {"secretName": "s", "defaultMode": 0o440}}]}
    mounts = [{"name": "s", "mountPath": "/etc/mlportal", "readOnly": True}]
    script = """
import os, time
print(oct(os.stat('/etc/mlportal/key').st_mode & 0o777), open('/etc/mlportal/key').read())
try: open('/etc/mlportal/key', 'w')
except OSError as error: print(error.errno)
while open('/etc/mlportal/key').read() == '1': time.sleep(0.01)
print(open('/etc/mlportal/key').read())
"""
    pod = node.create(script, spec=spec, volumeMounts=mounts)
    await node.running(pod)
    while "30" not in await node.log(pod):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    secret["data"]["key"] = base64.b64encode(b"2").decode()
    node.store.update("secrets", secret)
    await node.finished(pod)
    assert await node.log(pod) == "0o440 1\n30\n2\n"


async def test_a_missing_secret_is_a_failed_mount_until_it_is_there(node: Node) -> None:
    spec = {"volumes": [{"name": "s", "secret": {"secretName": "late"}}]}
    pod = node.create(
        "print(open('/s/a').read())", spec=spec, volumeMounts=[{"name": "s", "mountPath": "/s", "readOnly": True}]
    )
    expected = ("FailedMount", 'MountVolume.SetUp failed for volume "s" : secret "late" not found')
    await node.until(pod, lambda p: expected in node.events(p))
    node.store.create("secrets", {"metadata": {"name": "late", "namespace": "default"}, "data": {"a": "Yg=="}})
    await node.finished(pod)
    assert await node.log(pod) == "b\n"


async def test_a_config_map_is_mounted_as_files(node: Node) -> None:
    node.store.create("configmaps", {"metadata": {"name": "c", "namespace": "default"}, "data": {"a": "1", "b": "2"}})
    spec = {"volumes": [{"name": "p", "configMap": {"name": "c"}}]}
    mounts = [{"name": "p", "mountPath": "/p", "readOnly": True}]
    script = "import os; print(open('/p/b').read(), sorted(os.listdir('/p')))"
    assert await node.output(script, spec=spec, volumeMounts=mounts) == "2 ['a', 'b']\n"


async def test_memory_volumes_have_their_size(node: Node) -> None:
    spec = {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}}]}
    script = "import os; s = os.statvfs('/m'); print(s.f_blocks * s.f_frsize)"
    assert await node.output(script, spec=spec, volumeMounts=[{"name": "m", "mountPath": "/m"}]) == "4194304\n"


async def test_containers_of_a_pod_share_an_empty_dir_and_localhost(node: Node) -> None:
    server = "import socket; s = socket.create_server(('127.0.0.1', 7000)); c, _ = s.accept(); c.sendall(b'hi')"
    client = """
import socket, time
while True:
    try: print(socket.create_connection(('127.0.0.1', 7000)).recv(2).decode()); break
    except OSError: time.sleep(0.02)
"""
    pod = node.create(client)
    side = {"name": "side", "image": "test/python:1", "command": ["python3", "-c", server]}
    both = node.create(client, spec={"containers": [_main(client), side]})
    await node.finished(both)
    assert await node.log(both) == "hi\n"
    node.store.delete("pods", "default", pod["metadata"]["name"])


def _main(script: str) -> dict[str, Any]:
    return {"name": "main", "image": "test/python:1", "command": ["python3", "-u", "-c", script]}
