"""Issue 5: any image works as a dev instance on a real cluster, entered by SSH with the real OpenSSH client.

The nodes have mlportal/tools:1, python:1 and jupyter:1, debian:bookworm, and what tests/images/build makes.

KUBECONFIG=… [MLPORTAL_TEST_TOOLS_IMAGE=…] python -m pytest -m cluster tests/instances/test_images_on_cluster.py
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.models import Image
from apps.instances import imaging
from apps.instances import ssh as host_keys
from kubekit import activity, keyfile, names, tools
from kubekit.build import instance as build
from kubekit.build import queue
from kubekit.build.pod import CONTAINER
from kubekit.client import Cluster
from kubekit.credentials import Credentials, parse_kubeconfig
from kubekit.specs import InstanceSpec, QueueSpec, Resources
from kubekit.streams import Streams
from tests.conformance.queues import row, wait_for
from tests.kubekit.samples import GIB, instance_spec, queue_spec

pytestmark = pytest.mark.cluster

TOOLS = os.environ.get("MLPORTAL_TEST_TOOLS_IMAGE", "mlportal/tools:1")
JUPYTER = os.environ.get("MLPORTAL_TEST_DEV_IMAGE", "mlportal/jupyter:1")
DEBIAN = "docker.io/library/debian:bookworm"
PATIENCE_S = 120


@dataclass(frozen=True)
class Desk:
    """Somebody's own machine: two key pairs, and what their instances have as host key and password."""

    folder: Path
    secret: dict[str, str]
    host_public: str

    def file(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(scope="module")
def credentials() -> Credentials:
    return parse_kubeconfig(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cluster(credentials: Credentials) -> Iterator[Cluster]:
    found = Cluster(credentials)
    yield found
    found.close()


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Iterator[QueueSpec]:
    spec = queue_spec(identity=row("queue", "images"), pods=9, claims=2, storage_bytes=GIB)
    for obj in queue.objects(spec):
        cluster.apply(obj)
    wait_for(lambda: cluster.get("ResourceQuota", spec.namespace, "queue").get("status", {}).get("hard"))
    yield spec
    cluster.delete("Namespace", None, spec.namespace)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("desk")
    for name, kind in (("ed25519", "ed25519"), ("rsa", "rsa"), ("ecdsa", "ecdsa"), ("stranger", "ed25519")):
        command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    known = "".join((folder / f"{name}.pub").read_text() for name in ("ed25519", "rsa", "ecdsa"))
    host = host_keys.fresh_host_key()
    secret = {"key": secrets.token_urlsafe(32), "ssh-host-key": host["ssh_host_key"], "authorized_keys": known}
    return Desk(folder=folder, secret=secret, host_public=host["ssh_host_public"])


@contextmanager
def started(cluster: Cluster, team: QueueSpec, desk: Desk, image: str, *, ready: bool = True) -> Iterator[InstanceSpec]:
    """An instance as the portal writes it, but with a home that goes with its pod."""
    name = re.sub(r"[^a-z]+", "-", image.rpartition("/")[2].partition(":")[0])
    spec = instance_spec(
        identity=row("instance", name),
        namespace=team.namespace,
        image=image,
        tools_image=TOOLS,
        resources=Resources(cpu_millis=250, memory_bytes=GIB // 4),
        env={"OWN": "given $(OWN) $$"},
        mounts=(),
        grace_s=10,
    )
    cluster.apply(build.secret(spec, desk.secret))
    workload = build.stateful_set(spec, replicas=1)
    inside = workload["spec"]["template"]["spec"]
    inside["volumes"].append({"name": "home", "emptyDir": {}})
    inside["containers"][0]["volumeMounts"].append({"name": "home", "mountPath": "/root"})
    cluster.apply(workload)
    try:
        if ready:
            wait_for(lambda: is_ready(cluster, spec), seconds=PATIENCE_S)
        yield spec
    finally:
        cluster.scale(spec.namespace, spec.object_name, 0)


def pods(cluster: Cluster, spec: InstanceSpec) -> list[dict[str, Any]]:
    return list(cluster.list("Pod", spec.namespace, labels=names.selector(spec.identity)))


def is_ready(cluster: Cluster, spec: InstanceSpec) -> bool:
    conditions = [one for pod in pods(cluster, spec) for one in pod.get("status", {}).get("conditions", ())]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def inside(credentials: Credentials, spec: InstanceSpec, *command: str) -> tuple[int, str]:
    async def run() -> tuple[int, str]:
        async with Streams(credentials) as streams:
            code, out, errors = await streams.run(spec.namespace, spec.pod_name, CONTAINER, command, timeout_s=60)
        return code, (out + errors).decode()

    return asyncio.run(run())


def found(credentials: Credentials, spec: InstanceSpec) -> dict[str, str]:
    code, said = inside(credentials, spec, *tools.READ)
    assert code == 0, said
    return dict(tools.parse_found(said))


def status(credentials: Credentials, spec: InstanceSpec, path: str, key: str = "") -> int:
    """What it answers on its port for browsers."""
    header = f"Authorization: token {key}\r\n" if key else ""
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n"

    async def ask() -> int:
        told, text = None, b""
        async with Streams(credentials) as streams, streams.port_forward(spec.namespace, spec.pod_name, 8888) as tunnel:
            await tunnel.write(asked.encode())
            while not (told := re.match(rb"HTTP/1\.[01] (\d+)", text)):
                piece = await tunnel.read()
                assert piece, text
                text += piece
        return int(told[1])

    return asyncio.run(ask())


class Way:
    """OpenSSH's own programs, to one instance, with its host key pinned."""

    def __init__(self, desk: Desk, port: str) -> None:
        known = desk.file(f"known-{port}")
        known.write_text(f"[127.0.0.1]:{port} {desk.host_public}\n")
        self.desk = desk
        self.options = [
            *("-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes"),
            *("-o", "IdentityAgent=none", "-o", f"ConnectTimeout={PATIENCE_S}", "-o", "ServerAliveInterval=15"),
        ]
        self.port = port

    def ssh(self, *words: str, key: str = "ed25519", **given: Any) -> subprocess.CompletedProcess[str]:
        """With a key pair and nothing else."""
        who = ["-o", "BatchMode=yes", "-i", str(self.desk.file(key)), "-p", self.port, "user@127.0.0.1"]
        return self.run("ssh", *who, *words, **given)

    def with_password(self, password: str, *words: str) -> subprocess.CompletedProcess[str]:
        """With a password, which an askpass program gives from a file."""
        ask = self.desk.file("askpass")
        ask.write_text(f"#!/bin/sh\necho '{password}'\n")
        ask.chmod(0o700)
        environ = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
        only = ["-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1"]
        return self.run("ssh", *only, "-p", self.port, "user@127.0.0.1", *words, env=environ)

    def run(self, program: str, *words: str, **given: Any) -> subprocess.CompletedProcess[str]:
        command = [program, *self.options, *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, start_new_session=True, **given
        )


@contextmanager
def forwarded(spec: InstanceSpec, desk: Desk) -> Iterator[Way]:
    """kubectl's own way to sshd inside; sshd comes up beside the rest, so the first answer is waited for."""
    command = ["kubectl", "port-forward", "-n", spec.namespace, f"pod/{spec.pod_name}", ":2222"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            told = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert told, "kubectl port-forward did not begin"
            way = Way(desk, told[1])
            deadline = time.monotonic() + PATIENCE_S
            while (first := way.ssh("true")).returncode != 0:
                assert time.monotonic() < deadline, first.stderr
                time.sleep(0.2)
            yield way
        finally:
            process.terminate()


# --- Debian: a shell, no Python ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def debian(cluster: Cluster, team: QueueSpec, desk: Desk) -> Iterator[InstanceSpec]:
    with started(cluster, team, desk, DEBIAN) as spec:
        yield spec


@pytest.fixture(scope="module")
def way(debian: InstanceSpec, desk: Desk) -> Iterator[Way]:
    with forwarded(debian, desk) as found:
        yield found


def test_a_plain_debian_is_entered_by_any_kind_of_key_and_a_stranger_is_not(way: Way) -> None:
    for kind in ("ed25519", "rsa", "ecdsa"):
        done = way.ssh("id -u; pwd; echo $HOME $SHELL $OWN; exit 7", key=kind)
        assert done.stdout.split("\n")[:2] == ["1000", "/root"], (kind, done.stderr)
        assert done.stdout.split("\n")[2] == "/root /bin/bash given $(OWN) $$"
        assert done.returncode == 7
    assert "Permission denied" in way.ssh("true", key="stranger").stderr


def test_the_key_of_the_launch_is_the_password_and_no_other(way: Way, desk: Desk) -> None:
    assert way.with_password(desk.secret["key"], "echo in").stdout == "in\n"
    assert "Permission denied" in way.with_password("another", "echo in").stderr


def test_a_terminal_is_one(way: Way) -> None:
    done = way.ssh("-tt", "test -t 0 && tty && stty size")
    assert "/dev/pts/" in done.stdout, done.stderr


def test_files_go_by_scp_old_and_new_and_by_sftp(way: Way, desk: Desk, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "up").write_bytes(content)
    who = ["-o", "BatchMode=yes", "-i", str(desk.file("ed25519")), "-P", way.port]
    for number, more in enumerate(([], ["-O"])):
        done = way.run("scp", *who, *more, "-q", str(tmp_path / "up"), f"user@127.0.0.1:copy-{number}")
        assert done.returncode == 0, done.stderr
        back = tmp_path / f"back-{number}"
        done = way.run("scp", *who, *more, "-q", f"user@127.0.0.1:copy-{number}", str(back))
        assert back.read_bytes() == content, done.stderr
    done = way.run(
        "sftp", *who, "-b", "-", "user@127.0.0.1", input="mkdir made\nput up made/up\nls -l made\n", cwd=tmp_path
    )
    assert "3000000" in done.stdout, done.stderr


def test_a_port_inside_is_reached_through_it(way: Way, desk: Desk) -> None:
    """The responder of /portal/ready stands for any program; -W is what -L and ProxyJump use."""
    asked = "GET /portal/ready HTTP/1.0\r\n\r\n"
    who = ["-o", "BatchMode=yes", "-i", str(desk.file("ed25519")), "-p", way.port, "user@127.0.0.1"]
    for host in ("127.0.0.1", "localhost"):
        done = way.run("ssh", "-W", f"{host}:8888", *who, input=asked)
        assert "200 OK" in done.stdout, done.stderr


def test_it_is_ready_without_jupyter_tells_why_and_serves_nothing_else(
    credentials: Credentials, debian: InstanceSpec
) -> None:
    assert found(credentials, debian) == {"why": "no-python", "shell": "/bin/bash"}
    assert status(credentials, debian, "/portal/ready") == 200
    assert status(credentials, debian, "/api/status") == 404
    assert status(credentials, debian, "/../../etc/passwd") in {400, 404}


def test_a_new_key_is_the_password_at_once_and_sessions_go_on(
    credentials: Credentials, debian: InstanceSpec, way: Way, desk: Desk
) -> None:
    async def rotate() -> None:
        async with Streams(credentials) as streams:
            await keyfile.push(streams, debian.namespace, debian.pod_name, CONTAINER, "another-key", shell=tools.SHELL)

    who = ["-o", "BatchMode=yes", "-i", str(desk.file("ed25519")), "-p", way.port, "user@127.0.0.1"]
    command = ["ssh", *way.options, *who, "echo in; read line; echo $line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout and session.stdin
        assert session.stdout.readline() == "in\n"
        asyncio.run(rotate())
        assert way.with_password("another-key", "echo in").stdout == "in\n"
        assert "Permission denied" in way.with_password(desk.secret["key"], "echo in").stderr
        session.stdin.write("still here\n")
        session.stdin.flush()
        assert session.stdout.readline() == "still here\n"
    assert (
        "another-key" not in inside(credentials, debian, "/bin/sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")[1]
    )


def test_the_tools_cannot_be_changed_from_inside(way: Way) -> None:
    done = way.ssh("id -u; touch /opt/mlportal/x || echo refused")
    assert done.stdout.split() == ["1000", "refused"], done.stderr


# --- other images ------------------------------------------------------------------------------------------------


def test_an_image_of_one_program_has_a_shell_by_ssh(
    cluster: Cluster, credentials: Credentials, team: QueueSpec, desk: Desk
) -> None:
    """No /bin/sh, no /etc/passwd, and its own start command is not run."""
    with started(cluster, team, desk, "mlportal/test-bare:1") as spec, forwarded(spec, desk) as way:
        assert found(credentials, spec) == {"why": "no-python", "shell": "/opt/mlportal/bin/sh"}
        bare = Image(prepared=False)
        assert inside(credentials, spec, *imaging.script(bare, "cat /etc/mlportal/key")) == (0, desk.secret["key"])
        done = way.ssh("id -u; ls /bin 2>&1; ls -d /etc/mlportal; echo $HOME | wc -c")
        assert done.stdout.split("\n") == ["1000", "ls: /bin: No such file or directory", "/etc/mlportal", "6", ""]
        assert way.with_password(desk.secret["key"], "echo in").stdout == "in\n"


def test_an_image_whose_user_is_1000_and_whose_command_ends_at_once_works(
    cluster: Cluster, credentials: Credentials, team: QueueSpec, desk: Desk
) -> None:
    with started(cluster, team, desk, "mlportal/test-user:1") as spec, forwarded(spec, desk) as way:
        assert way.ssh("id -un; pwd").stdout == "jovyan\n/root\n"
        assert found(credentials, spec)["why"] == "no-python"


def test_an_image_with_python_alone_says_what_is_missing(
    cluster: Cluster, credentials: Credentials, team: QueueSpec, desk: Desk
) -> None:
    with started(cluster, team, desk, "mlportal/python:1") as spec:
        told = found(credentials, spec)
    assert told["why"] == "no-jupyterlab"
    assert re.fullmatch(r"3\.\d+", told["detail"])


def test_an_image_with_jupyterlab_has_it_behind_the_key(
    cluster: Cluster, credentials: Credentials, team: QueueSpec, desk: Desk
) -> None:
    with started(cluster, team, desk, JUPYTER) as spec, forwarded(spec, desk) as way:
        told = found(credentials, spec)
        assert told["jupyterlab"].startswith("4.")
        assert told["python"].startswith("/opt/venv/bin/python")
        assert status(credentials, spec, "/api/status") == 403
        assert status(credentials, spec, "/api/status", desk.secret["key"]) == 200
        assert way.ssh("echo in").stdout == "in\n"


def test_an_image_for_another_processor_says_so(cluster: Cluster, team: QueueSpec, desk: Desk) -> None:
    with started(cluster, team, desk, "mlportal/test-foreign:1", ready=False) as spec:

        def ended() -> dict[str, Any] | None:
            states = [
                state
                for pod in pods(cluster, spec)
                for row in pod.get("status", {}).get("containerStatuses", ())
                for state in (row.get("state", {}).get("terminated"), row.get("lastState", {}).get("terminated"))
            ]
            return next((state for state in states if state), None)

        told = wait_for(ended, seconds=PATIENCE_S)
    assert told["exitCode"] == 126
    assert "exec format error" in told["message"]


def test_at_its_end_programs_are_told_and_nobody_comes_in_any_more(
    cluster: Cluster, team: QueueSpec, desk: Desk
) -> None:
    """What takes no notice is ended before the pod's time is over."""
    with started(cluster, team, desk, DEBIAN) as spec, forwarded(spec, desk) as way:
        who = ["-o", "BatchMode=yes", "-i", str(desk.file("ed25519")), "-p", way.port, "user@127.0.0.1"]
        busy = "trap '' TERM; echo in; while :; do sleep 1; done"
        with subprocess.Popen(["ssh", *way.options, *who, busy], stdout=subprocess.PIPE, text=True) as session:
            assert session.stdout
            assert session.stdout.readline() == "in\n"
            cluster.scale(spec.namespace, spec.object_name, 0)
            assert session.wait(PATIENCE_S) == 255
        assert way.ssh("echo in").stdout == ""
        wait_for(lambda: not pods(cluster, spec), seconds=PATIENCE_S)


def test_what_goes_on_in_it_is_seen_whatever_the_image_has(
    cluster: Cluster, credentials: Credentials, team: QueueSpec, desk: Desk
) -> None:
    """An idle stop looks inside: by the portal's own shell, and at Jupyter wherever the image has it."""

    async def look(spec: InstanceSpec) -> activity.Look:
        async with Streams(credentials) as streams:
            return await activity.look(streams, spec.namespace, spec.pod_name, CONTAINER, shell=tools.SHELL)

    with started(cluster, team, desk, "mlportal/test-bare:1") as spec, forwarded(spec, desk) as way:
        assert asyncio.run(look(spec)).ssh == 0
        who = ["-o", "BatchMode=yes", "-i", str(desk.file("ed25519")), "-p", way.port, "user@127.0.0.1"]
        session = ["ssh", *way.options, *who, "echo in; read line"]
        with subprocess.Popen(session, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdin
            assert process.stdout.readline() == "in\n"
            assert asyncio.run(look(spec)).ssh >= 1
            process.stdin.close()
