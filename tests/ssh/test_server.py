"""The entrance's SSH server with the real OpenSSH client: who gets how far. Database and clusters are stood in for."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncssh
import pytest

from apps.core import actors
from apps.core.errors import NotFound
from apps.instances.sshgate import doors, limits, server
from apps.instances.sshgate.doors import Door, Person
from kubekit.errors import NotFound as KubeNotFound

PATIENCE_S = 90
USER = UUID("00000000-0000-4000-8000-000000000001")


class Desk:
    """Stands in for the database."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, str], UUID] = {}
        self.launch = (uuid4(), 1)
        self.alive = True
        self.entered: list[str] = []
        self.left: list[dict[str, Any]] = []

    def admit(self, username: str, fingerprint: str, address: str | None) -> Person | None:
        key = self.keys.get((username, fingerprint))
        if key is None:
            return None
        actor = actors.Actor(user_id=USER, name=username, address=address)
        return Person(actor=actor, key_id=key, fingerprint=fingerprint)

    def note_use(self, person: Person) -> None:
        """Nothing is kept."""

    def open_to(self, person: Person, wanted: str) -> Door:
        if not wanted.startswith("dev"):
            raise NotFound(f"There is no instance “{wanted}” that you may enter.", next="List yours.")
        pk, launch = self.launch
        return Door(instance_id=pk, launch=launch, name=wanted, cluster=None, namespace="n", pod=wanted, inside=False)  # type: ignore[arg-type]

    def do_enter(self, person: Person, door: Door) -> None:
        self.entered.append(door.name)

    def do_leave(self, person: Person, door: Door, **detail: Any) -> None:
        self.left.append({"name": door.name, **detail})

    def still_open(self, launches: Any) -> set[Any]:
        return set(launches) if self.alive else set()

    def still_known(self, keys: Any) -> set[UUID]:
        return set(keys) & set(self.keys.values())


class Echo:
    """Stands in for a pod: what comes is sent back, unless it is ``stuck``."""

    def __init__(self, name: str) -> None:
        self._stuck = asyncio.Event()
        if "stuck" not in name:
            self._stuck.set()
        self._back: asyncio.Queue[bytes] = asyncio.Queue(maxsize=8)
        self.taken = 0
        self.closed = False

    async def read(self) -> bytes:
        return await self._back.get()

    async def write(self, data: bytes) -> None:
        await self._stuck.wait()
        self.taken += len(data)
        await self._back.put(data)

    async def close(self) -> None:
        self.closed = True


class Entrance:
    """A gate in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.desk = Desk()
        self.conduits: list[Echo] = []
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.key = self.make_key("mine")
        self.make_key("stranger")
        self.desk.keys["ada", self.fingerprint("mine")] = uuid4()
        self.port = self.run(self._start())

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def make_key(self, name: str) -> Path:
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return path

    def fingerprint(self, name: str) -> str:
        return str(asyncssh.read_public_key(str(self.folder / f"{name}.pub")).get_fingerprint())

    async def _start(self) -> int:
        self.gate = server.Gate()
        self.gate.ways = self  # type: ignore[assignment]
        self.stop_event = asyncio.Event()
        listener = socket.create_server(("127.0.0.1", 0))
        self.acceptor = await server.listen(self.gate, listener, asyncssh.generate_private_key("ssh-ed25519"))
        self.watching = asyncio.create_task(self.gate.watch(self.stop_event))
        return int(listener.getsockname()[1])

    async def to(self, door: Door) -> Echo:
        if "deaf" in door.name:
            raise KubeNotFound("nothing listens on this port of the pod")
        self.conduits.append(Echo(door.name))
        return self.conduits[-1]

    async def close(self) -> None:
        """As `way.Ways`."""

    def stop(self) -> None:
        async def end() -> None:
            self.stop_event.set()
            self.acceptor.close()
            await self.gate.close()
            await self.watching

        self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def command(self, *words: str, key: str = "mine", user: str = "ada") -> list[str]:
        chosen = {
            "Port": self.port, "User": user, "IdentityFile": self.folder / key, "IdentitiesOnly": "yes",
            "IdentityAgent": "none", "BatchMode": "yes", "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null", "LogLevel": "INFO", "ConnectTimeout": PATIENCE_S,
        }  # fmt: skip
        return ["ssh", "-F", "none", *(f"-o{name}={value}" for name, value in chosen.items()), *words]

    def ssh(self, *words: str, given: bytes = b"", **who: str) -> Any:
        command = self.command(*words, **who)
        return subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE_S, check=False)

    def wait_until(self, test: Any) -> None:
        until = time.monotonic() + PATIENCE_S
        while not test():
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.fixture
def entrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Entrance]:
    made = Entrance(tmp_path)
    for name in ("admit", "note_use", "open_to", "still_open", "still_known"):
        monkeypatch.setattr(doors, name, getattr(made.desk, name))
    monkeypatch.setattr(doors, "entered", made.desk.do_enter)
    monkeypatch.setattr(doors, "left", made.desk.do_leave)
    yield made
    made.stop()


def through(entrance: Entrance, name: str, **more: Any) -> subprocess.Popen[bytes]:
    """``ssh -W``, as ProxyJump runs it."""
    command = entrance.command("-W", f"{name}:22", "127.0.0.1")
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_a_megabyte_goes_in_and_comes_back_whole_and_is_counted(entrance: Entrance) -> None:
    content = os.urandom(1 << 20)
    with through(entrance, "dev") as process:
        assert process.stdin and process.stdout
        writing = threading.Thread(target=lambda: (process.stdin.write(content), process.stdin.flush()))
        writing.start()
        assert process.stdout.read(len(content)) == content
        writing.join()
        process.stdin.close()
        process.wait(PATIENCE_S)
    entrance.wait_until(lambda: entrance.desk.left)
    [left] = entrance.desk.left
    assert (left["sent"], left["received"], left["why"]) == (1 << 20, 1 << 20, "closed by the person")
    assert entrance.desk.entered == ["dev"]
    entrance.wait_until(lambda: entrance.conduits[0].closed)


@pytest.mark.parametrize("who", [{"key": "stranger"}, {"user": "eve"}, {"user": "../ada"}])
def test_another_key_or_name_is_denied(entrance: Entrance, who: dict[str, str]) -> None:
    done = entrance.ssh("-W", "dev:22", "127.0.0.1", **who)
    assert done.returncode == 255 and b"Permission denied (publickey)" in done.stderr
    assert entrance.desk.entered == []


def test_there_is_no_shell_but_whoever_tries_the_key_hears_that_it_works(entrance: Entrance) -> None:
    done = entrance.ssh("127.0.0.1")
    assert done.returncode == 1 and b"Hello ada" in done.stdout and b"no shell" in done.stdout
    for words in (("127.0.0.1", "id"), ("-s", "127.0.0.1", "sftp")):
        assert b"uid" not in entrance.ssh(*words).stdout


def test_nothing_else_is_forwarded_and_each_refusal_says_why(entrance: Entrance) -> None:
    refused = entrance.ssh("-W", "127.0.0.1:80", "127.0.0.1")
    assert b'There is no instance "127.0.0.1" that you may enter. List yours.' in refused.stderr
    deaf = entrance.ssh("-W", "dev-deaf:22", "127.0.0.1")
    assert b"SSH is not running in this instance" in deaf.stderr
    backward = entrance.ssh("-N", "-oExitOnForwardFailure=yes", "-R", "0:localhost:22", "127.0.0.1")
    assert b"remote port forwarding failed" in backward.stderr
    assert entrance.desk.entered == []


def test_a_password_is_not_even_asked_for(entrance: Entrance) -> None:
    done = entrance.ssh("-oPubkeyAuthentication=no", "127.0.0.1")
    assert b"Permission denied (publickey)." in done.stderr


def test_stopping_or_deleting_the_instance_ends_what_is_open(entrance: Entrance) -> None:
    with through(entrance, "dev") as process:
        entrance.wait_until(lambda: entrance.desk.entered)
        entrance.desk.alive = False
        process.wait(PATIENCE_S)
    entrance.wait_until(lambda: entrance.desk.left)
    assert entrance.desk.left[0]["why"] == "the instance was stopped or deleted"


def test_f45_a_key_that_is_deleted_ends_what_it_has_open(entrance: Entrance) -> None:
    with through(entrance, "dev") as process:
        entrance.wait_until(lambda: entrance.desk.entered)
        entrance.desk.keys.clear()
        process.wait(PATIENCE_S)
    entrance.wait_until(lambda: entrance.desk.left)
    assert "no longer registered" in entrance.desk.left[0]["why"]


def test_one_that_is_stuck_holds_back_its_own_sender_and_nobody_else(entrance: Entrance) -> None:
    big = b"x" * (8 << 20)
    with through(entrance, "dev-stuck") as stuck:
        assert stuck.stdin
        os.set_blocking(stuck.stdin.fileno(), False)
        entrance.wait_until(lambda: entrance.conduits)
        pushed, quiet_since = 0, time.monotonic()
        while time.monotonic() - quiet_since < 1.0 and pushed < len(big):
            try:
                pushed += os.write(stuck.stdin.fileno(), big[pushed : pushed + 65536])
                quiet_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.02)
        assert pushed < len(big)  # what the client's side and one window hold, and no more
        with through(entrance, "dev") as other:
            assert other.stdin and other.stdout
            other.stdin.write(b"hello")
            other.stdin.flush()
            assert other.stdout.read(5) == b"hello"
            other.kill()
        assert entrance.conduits[0].taken == 0
        stuck.kill()


def test_an_address_that_guesses_is_turned_away_for_a_while_and_the_owner_gets_in_again(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    entrance.gate.wrong = limits.Wrong(at_once=3, a_second=0)
    for _ in range(3):
        entrance.ssh("127.0.0.1", key="stranger")
    assert b"Permission denied" not in entrance.ssh("127.0.0.1").stderr
    assert b"Hello" not in entrance.ssh("127.0.0.1").stdout
    entrance.gate.wrong.a_second = 1e9
    assert b"Hello" in entrance.ssh("127.0.0.1").stdout


def test_who_offers_too_many_keys_is_told_how_to_choose_one(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OFFERS", 1)
    entrance.make_key("second")
    more = f"-oIdentityFile={entrance.folder / 'second'}"
    assert b"IdentitiesOnly" in entrance.ssh(more, "127.0.0.1", key="stranger").stderr


def test_a_person_has_so_many_connections_and_a_connection_so_many_channels(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS_OF_A_PERSON", 1)
    with through(entrance, "dev") as first:
        entrance.wait_until(lambda: entrance.desk.entered)
        assert b"1 connections open" in entrance.ssh("-W", "dev:22", "127.0.0.1").stderr
        first.kill()
    entrance.wait_until(lambda: not entrance.gate._guests)
    monkeypatch.setattr(limits, "CHANNELS_OF_A_CONNECTION", 0)
    assert b"channels open" in entrance.ssh("-W", "dev:22", "127.0.0.1").stderr


def test_those_who_do_not_say_who_they_are_are_counted_by_address(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STRANGERS_OF_AN_ADDRESS", 2)
    silent = [socket.create_connection(("127.0.0.1", entrance.port)) for _ in range(2)]
    for sock in silent:
        assert sock.recv(4) == b"SSH-"
    with socket.create_connection(("127.0.0.1", entrance.port)) as third:
        third.settimeout(PATIENCE_S)
        while third.recv(100):
            pass
    assert entrance.gate.strangers.total == 2  # those before it are waited for; the login's time-out would end all
    for sock in silent:
        sock.close()
    entrance.wait_until(lambda: entrance.gate.strangers.total == 0)
    assert b"Hello" in entrance.ssh("127.0.0.1").stdout


def test_the_end_of_the_entrance_writes_down_who_was_there(entrance: Entrance) -> None:
    with through(entrance, "dev") as process:
        entrance.wait_until(lambda: entrance.desk.entered)
        entrance.run(entrance.gate.close())
        process.wait(PATIENCE_S)
    [left] = entrance.desk.left
    assert "restarted" in left["why"]
