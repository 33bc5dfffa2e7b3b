"""The dev image itself, as a pod: who gets in, and what a person finds there. Builds the image (cached per run)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.docker.conftest import DOCKER
from tests.localkube.node.support import Node, ready

pytestmark = pytest.mark.slow

KEY = "the-launch-key-of-this-test"
INSTANCE = "0b8f6c0e"


class Instance:
    """A dev instance on a node of its own, in a thread; requests go to its port through the node."""

    def __init__(self, home: Path, **secrets: str) -> None:
        self.secrets = {"key": KEY, **secrets}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.node: Node = self.run(self._make(home))
        self.pod: Any = None

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    @staticmethod
    async def _make(home: Path) -> Node:
        node = Node(home, DOCKER / "images.toml")
        await node.start()
        return node

    def launch(self, size: str = "64Mi") -> None:
        self.run(self._launch(size))

    async def _launch(self, size: str) -> None:
        node = self.node
        data = {name: base64.b64encode(text.encode()).decode() for name, text in self.secrets.items()}
        node.store.create("secrets", {"metadata": {"name": "dev", "namespace": "default"}, "data": data})
        node.claim("home", size)
        volumes = [
            {"name": "home", "persistentVolumeClaim": {"claimName": "home"}},
            {"name": "key", "secret": {"secretName": "dev"}},
            {"name": "live", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ]
        container = {
            "name": "main",
            "image": "mlportal/jupyter:1",
            "env": [
                {"name": "MLPORTAL_INSTANCE_ID", "value": INSTANCE},
                {"name": "MLPORTAL_PORTAL_ORIGIN", "value": "http://portal.test"},
            ],
            "readinessProbe": {"httpGet": {"path": "/portal/ready", "port": 8888}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": "home", "mountPath": "/root"},
                {"name": "key", "mountPath": "/etc/mlportal", "readOnly": True},
                {"name": "live", "mountPath": "/run/mlportal"},
            ],
        }
        spec = {"containers": [container], "volumes": volumes, "restartPolicy": "Always"}
        self.pod = node.create(spec=spec, labels={"app": "dev"})
        ports = [{"name": "http", "port": 80, "targetPort": 8888}]
        metadata = {"name": "dev", "namespace": "default"}
        service = {"selector": {"app": "dev"}, "ports": ports, "clusterIP": "127.0.0.1"}
        node.store.create("services", {"metadata": metadata, "spec": service})
        await node.until(self.pod, ready, timeout_s=110)

    async def session(self) -> aiohttp.ClientSession:
        services = self.node.kubelet._services
        assert services
        address = services.where("default", "dev", 80)
        return aiohttp.ClientSession(f"http://{address}", headers={"Host": "i-1.apps.test"})

    def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any, str]:
        async def send() -> tuple[int, Any, str]:
            async with (
                await self.session() as session,
                session.request(method, path, allow_redirects=False, **options) as answer,
            ):
                return answer.status, answer.headers, await answer.text()

        result: tuple[int, Any, str] = self.run(send())
        return result

    def stop(self) -> None:
        self.run(self.node.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def ticket(nonce: str, key: str = KEY) -> str:
    content = {"i": INSTANCE, "u": "ann", "exp": int(time.time()) + 60, "n": nonce}
    body = b64(json.dumps(content).encode())
    return f"{body}.{b64(hmac.new(key.encode(), body.encode(), hashlib.sha256).digest())}"


def with_key(key: str = KEY) -> dict[str, Any]:
    return {"headers": {"Authorization": f"token {key}"}}


@pytest.fixture(scope="module")
def cache() -> Iterator[None]:
    """The place where the journeys keep their images too: built once per machine, named by content."""
    with pytest.MonkeyPatch.context() as patch:
        if "LOCALKUBE_IMAGE_CACHE" not in os.environ:
            patch.setenv("LOCALKUBE_IMAGE_CACHE", str(Path.home() / ".cache" / "mlportal" / "images"))
        yield


@pytest.fixture(scope="module")
def instance(cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    made = Instance(tmp_path_factory.mktemp("dev"))
    try:
        made.launch()
        yield made
    finally:
        made.stop()


def test_ready_needs_no_key(instance: Instance) -> None:
    assert instance.ask("GET", "/portal/ready")[0] == 200


@pytest.mark.parametrize(
    "path", ["/lab", "/lab/tree/x", "/api/status", "/api/contents", "/tree", "/files/x", "/proxy/80/"]
)
def test_without_the_key_everything_is_403_and_no_login_page(instance: Instance, path: str) -> None:
    for options in ({}, with_key("wrong"), {"params": {"token": KEY}}):
        status, headers, text = instance.ask("GET", path, **options)
        assert status == 403
        assert "Location" not in headers
        assert 'type="password"' not in text


def test_the_refusal_says_where_to_enter(instance: Instance) -> None:
    assert "http://portal.test" in instance.ask("GET", "/lab")[2]


def test_the_key_opens_pages_and_the_api_and_is_written_into_neither(instance: Instance) -> None:
    status, headers, text = instance.ask("GET", "/lab", **with_key())
    assert status == 200
    assert KEY not in text
    assert "Set-Cookie" not in headers or KEY not in headers["Set-Cookie"]
    assert instance.ask("GET", "/api/status", **with_key())[0] == 200
    assert KEY not in instance.run(instance.node.log(instance.pod))


def test_a_ticket_enters_once_and_its_cookie_goes_on(instance: Instance) -> None:
    form = {"ticket": ticket("one"), "next": "/lab/tree/x"}
    status, headers, _ = instance.ask("POST", "/portal/enter", data=form)
    assert (status, headers["Location"]) == (303, "/lab/tree/x")
    cookie = headers["Set-Cookie"]
    assert cookie.startswith("__Host-mlportal=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(cookie.split("; "))
    assert "Domain" not in cookie
    sent = {"headers": {"Cookie": cookie.partition(";")[0]}}
    assert json.loads(instance.ask("GET", "/api/me", **sent)[2])["identity"]["username"] == "ann"
    assert instance.ask("POST", "/portal/enter", data=form)[0] == 403
    assert instance.ask("POST", "/portal/enter", data={"ticket": ticket("two", key="wrong")})[0] == 403
    assert instance.ask("POST", "/portal/enter", data={})[0] == 403


def test_a_cookie_alone_may_not_write_from_another_site(instance: Instance) -> None:
    _, headers, _ = instance.ask("POST", "/portal/enter", data={"ticket": ticket("three")})
    cookie = headers["Set-Cookie"].partition(";")[0]
    sent = {"headers": {"Cookie": cookie, "Origin": "http://evil.test"}}
    assert instance.ask("POST", "/api/terminals", **sent)[0] in (403, 404)


def test_a_terminal_is_a_real_one(instance: Instance) -> None:
    async def talk() -> str:
        async with await instance.session() as session:
            async with session.post("/api/terminals", **with_key()) as answer:
                name = (await answer.json())["name"]
            async with session.ws_connect(f"/terminals/websocket/{name}", **with_key()) as socket:
                await socket.send_json(["stdin", "echo $((6*7)) $(id -un) $(tty) $PWD $(which python) e''nd\r"])
                text = ""
                while " end" not in text:
                    kind, *data = json.loads((await asyncio.wait_for(socket.receive(), 20)).data)
                    text += data[0] if kind == "stdout" else ""
                return text

    text = instance.run(talk())
    assert "42 user /dev/pts/" in text
    assert "/root /opt/venv/bin/python" in text


def test_a_websocket_without_the_key_is_refused(instance: Instance) -> None:
    async def talk() -> int:
        async with await instance.session() as session:
            try:
                await session.ws_connect("/terminals/websocket/1")
            except aiohttp.WSServerHandshakeError as error:
                return error.status
        return 101

    assert instance.run(talk()) == 403


def test_a_rotated_key_replaces_the_old_one_at_once_and_kernels_go_on(instance: Instance) -> None:
    status, _, text = instance.ask("POST", "/api/kernels", json={"name": "python3"}, **with_key())
    assert status == 201
    kernel = json.loads(text)["id"]

    async def rotate(key: str) -> None:
        secret = instance.node.store.get("secrets", "default", "dev")
        secret["data"]["key"] = base64.b64encode(key.encode()).decode()
        instance.node.store.update("secrets", secret)

    instance.run(rotate("another"))
    assert instance.ask("GET", "/api/status", **with_key())[0] == 403
    kernels = json.loads(instance.ask("GET", "/api/kernels", **with_key("another"))[2])
    assert [entry["id"] for entry in kernels] == [kernel]
    instance.run(rotate(KEY))


def test_a_flood_of_wrong_keys_is_told_to_wait_and_never_keeps_the_owner_out(instance: Instance) -> None:
    """All from one address, which is the owner's too: as behind one proxy, or a forgotten script of the owner's own."""
    dead = {"Cookie": "__Host-mlportal=e30.e30"}

    async def flood() -> tuple[list[int], list[int], str]:
        refused, entered = [], []
        async with await instance.session() as session:
            for number in range(600):
                wrong = {"Authorization": f"token guess-{number}"} if number % 3 else dead
                async with session.get("/api/status", headers=wrong) as answer:
                    refused.append(answer.status)
                    text = await answer.text()
                if number % 100 == 0:
                    async with session.get("/api/status", **with_key()) as answer:
                        entered.append(answer.status)
            form = {"ticket": ticket("flood")}
            async with session.post("/portal/enter", data=form, headers=dead, allow_redirects=False) as answer:
                entered.append(answer.status)
        return refused, entered, text

    refused, entered, text = instance.run(flood())
    assert set(refused) == {403, 429}
    assert refused.count(403) <= 20 + 30, "what is won back in two and a half minutes besides"
    assert entered == [200] * 6 + [303]
    assert text.startswith("Too many wrong keys.")
    log = instance.run(instance.node.log(instance.pod))
    assert log.count("Too many wrong keys from") == 1
    assert "guess-599" not in log


def test_no_page_asks_the_internet_for_news_or_updates(instance: Instance) -> None:
    assert json.loads(instance.ask("GET", "/lab/api/news", **with_key())[2]).get("news") in ([], None)
    status, _, text = instance.ask("GET", "/lab/api/update", **with_key())
    assert status in (200, 404)
    assert '"notification": null' in text or status == 404


TOLD = "No space left on device"
FILL = """
f = open('/root/big', 'wb')
try:
    while True: f.write(bytes(1024)); f.flush()
except OSError: pass
"""


def test_a_full_home_is_told_by_jupyterlabs_own_words_in_the_log(cache: None, tmp_path: Path) -> None:
    made = Instance(tmp_path)
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    mounts = [{"name": "home", "mountPath": "/root"}]

    async def fill() -> None:
        made.node.claim("home", "8Mi")
        changes = {"image": "mlportal/python:1", "volumeMounts": mounts, "spec": {"volumes": volumes}}
        await made.node.finished(made.node.create(FILL, **changes), timeout_s=110)

    async def start() -> str:
        pod = made.node.create(
            image="mlportal/jupyter:1",
            command=["sh", "-c", "mkdir /tmp/s; echo k > /tmp/s/key; MLPORTAL_SECRETS=/tmp/s exec mlportal-entrypoint"],
            volumeMounts=mounts,
            spec={"volumes": volumes, "activeDeadlineSeconds": 110},
        )
        await made.node.running(pod)
        text = ""
        for _ in range(400):  # until it is said, however long the machine takes
            text = await made.node.log(pod)
            if TOLD in text:
                break
            await asyncio.sleep(0.25)
        return text

    try:
        if made.node.kubelet.context.volumes.images:  # elsewhere a folder cannot be full
            made.run(fill())
            assert TOLD in made.run(start())
    finally:
        made.stop()
