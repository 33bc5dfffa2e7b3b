"""What a pod must not reach: the host's files, processes, listeners and rights, and its neighbours."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.localkube.node.support import Node, main_state

SERVER = """
import socket, time
s = socket.create_server(('0.0.0.0', 8080)); print('up')
while True:
    c, _ = s.accept(); c.sendall(b'mine'); c.close()
"""
REACH = """
import json, socket, sys
found = {}
for name, host, port in json.loads(sys.argv[1]):
    try:
        found[name] = socket.create_connection((host, port), 1).recv(4).decode()
    except OSError as error:
        found[name] = type(error).__name__
print(json.dumps(found))
"""


async def test_a_pod_holds_no_capability_and_can_gain_none(node: Node) -> None:
    script = """
import os
status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)
print({key: int(status[key], 16) for key in ('CapEff', 'CapPrm', 'CapBnd', 'CapInh', 'CapAmb')}, os.getuid())
print(status['NoNewPrivs'].strip())
"""
    text = await node.output(script)
    assert text == "{'CapEff': 0, 'CapPrm': 0, 'CapBnd': 0, 'CapInh': 0, 'CapAmb': 0} 1000\n1\n"


async def test_a_pod_cannot_make_user_namespaces(node: Node) -> None:
    assert await node.output("import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))") == "-1\n"


async def test_on_the_host_the_process_is_not_root_when_localkube_is(node: Node) -> None:
    pod = node.create("import time; time.sleep(30)")
    await node.running(pod)
    status = await node.kubelet._workers[pod["metadata"]["uid"]].agent.status()  # type: ignore[union-attr]
    await asyncio.sleep(0.1)
    for pid in (status["pid"], status["children"][0]["pid"]):
        uid = Path(f"/proc/{pid}").stat().st_uid  # noqa: ASYNC240
        assert uid == os.geteuid() if os.geteuid() else uid > 1_000_000


async def test_a_pod_sees_its_own_processes_alone(node: Node) -> None:
    script = "import os; print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))"
    assert await node.output(script) == "[1, 2]\n"


async def test_a_pod_cannot_read_the_hosts_files(node: Node, tmp_path: Path) -> None:
    secret = Path.home() / ".localkube-test-secret"
    secret.write_text("x")
    try:
        script = f"""
import os
for path in ({str(secret)!r}, {str(tmp_path)!r}, '/etc/shadow', '/home', '/var/lib', '/boot', {str(Path.cwd())!r}):
    print(os.path.exists(path))
print(sorted(set(os.listdir('/')) - {{'lib', 'lib32', 'lib64', 'libx32', 'bin', 'sbin', 'usr'}}))
"""
        text = await node.output(script)
    finally:
        secret.unlink()
    assert text.splitlines()[:-1] == ["False"] * 7
    assert text.splitlines()[-1] == "['dev', 'etc', 'mnt', 'opt', 'proc', 'root', 'run', 'tmp', 'var']"


async def test_the_system_is_read_only_and_the_home_is_not(node: Node) -> None:
    script = """
for path in ('/usr/x', '/etc/passwd', '/opt/venv/x', '/etc/ssl/x', '/root/x', '/tmp/x', '/dev/shm/x'):
    try:
        open(path, 'w'); print(path)
    except OSError: pass
"""
    assert await node.output(script) == "/root/x\n/tmp/x\n/dev/shm/x\n"


async def test_kernel_settings_cannot_be_written(node: Node) -> None:
    script = """
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches'):
    try:
        open(path, 'w'); print(path)
    except OSError: pass
"""
    assert await node.output(script) == ""


async def test_a_pod_reaches_neither_the_host_nor_its_neighbours_nor_the_api(node: Node) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    everywhere = socket.create_server(("0.0.0.0", 0))
    with listener, everywhere:
        other = node.create(SERVER)
        running = await node.running(other)
        address = running["status"]["podIP"]
        targets = [
            ("host", "127.0.0.1", listener.getsockname()[1]),
            ("host by wildcard", "127.0.0.1", everywhere.getsockname()[1]),
            ("neighbour", address, 8080),
            ("neighbour on localhost", "127.0.0.1", 8080),
        ]
        targets += [(f"host at {own}", own, everywhere.getsockname()[1]) for own in _own_addresses()]
        pod = node.create(command=["python3", "-c", REACH, json.dumps(targets)])
        await node.finished(pod)
        found: dict[str, str] = json.loads(await node.log(pod))
    assert set(found) == {name for name, _, _ in targets}
    assert set(found.values()) <= {"ConnectionRefusedError", "TimeoutError", "OSError"}, found


def _own_addresses() -> list[str]:
    """The address that this machine uses towards the world, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.200", 9))
        except OSError:
            return []
        return [probe.getsockname()[0]]


async def test_a_port_is_reached_from_outside_through_the_node_alone(node: Node) -> None:
    pod = node.create(SERVER)
    await node.running(pod)
    while "up" not in await node.log(pod):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    reader, writer = await node.kubelet.dial(pod, 8080)
    assert await reader.read() == b"mine"
    writer.close()
    with pytest.raises(OSError, match=r"refused|111"):
        await node.kubelet.dial(pod, 8081)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", 8080)


async def test_two_namespaces_run_as_two_users_of_the_host(node: Node) -> None:
    if os.geteuid():
        assert node.kubelet.context.host_uid("default") is None
        return
    assert node.kubelet.context.host_uid("default") != node.kubelet.context.host_uid("other")


async def test_no_policy_lets_out_and_a_denying_policy_does_not(node: Node) -> None:
    spec = {"podSelector": {"matchLabels": {"net": "none"}}, "policyTypes": ["Egress"]}
    metadata = {"name": "deny", "namespace": "default"}
    node.store.create("networkpolicies", {"metadata": metadata, "spec": spec})
    script = "print(sum(1 for line in open('/proc/net/route') if line.split()[1] == '00000000'))"
    assert await node.output(script, labels={"net": "none"}) == "0\n"
    expected = "1\n" if node.kubelet.context.network.pasta() else "0\n"
    assert await node.output(script) == expected


async def test_blocked_networks_have_no_way_even_where_the_rest_is_open(node: Node) -> None:
    whole = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["198.51.100.0/24", "169.254.0.0/16"]}}
    rule = {"to": [whole, {"ipBlock": {"cidr": "198.51.100.128/25"}}]}
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]}
    node.store.create("networkpolicies", {"metadata": {"name": "some", "namespace": "default"}, "spec": spec})
    script = """
import socket
for address in ('198.51.100.7', '198.51.100.200'):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # connecting one only asks for the route
    print(s.connect_ex((address, 80)))
"""
    blocked, opened = (await node.output(script)).split()
    assert blocked in ("101", "113")  # no route, or host unreachable
    assert opened == ("0" if node.kubelet.context.network.pasta() else blocked)


async def test_a_policy_for_one_network_opens_that_alone(node: Node) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]}
    node.store.create("networkpolicies", {"metadata": {"name": "one", "namespace": "default"}, "spec": spec})
    script = """
import socket
for family, address in ((2, '203.0.113.1'), (10, '2001:db8::1'), (2, '198.51.100.7')):
    print(socket.socket(family, socket.SOCK_DGRAM).connect_ex((address, 80)))
"""
    other, six, one = (await node.output(script)).split()
    assert {other, six} <= {"101", "113", "99"}
    assert one == ("0" if node.kubelet.context.network.pasta() else "101")


async def test_environment_values_do_not_show_in_the_hosts_process_list(node: Node) -> None:
    pod = node.create("import time; time.sleep(30)", env=[{"name": "SECRET", "value": "canary-7141"}])
    await node.running(pod)
    await asyncio.sleep(0.1)
    shown = b"".join(_read(entry) for entry in Path("/proc").glob("[0-9]*/cmdline"))  # noqa: ASYNC240
    assert b"canary-7141" not in shown
    assert main_state(node.now(pod))["running"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_preload_variables_of_the_manifest_never_reach_the_sandbox_program(node: Node) -> None:
    env: list[Any] = [{"name": "LD_PRELOAD", "value": "/mnt/0/evil.so"}]
    pod = node.create("print('ran')", env=env)
    await node.finished(pod)
    text = await node.log(pod)
    assert "ran" in text
    assert text.count("cannot be preloaded") <= 1  # by the container's own program, inside; bubblewrap saw nothing
