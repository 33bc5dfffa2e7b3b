"""A name that was checked is not asked for again: both clients connect to the checked addresses alone (failure F47)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kubekit.client import Cluster
from kubekit.credentials import Credentials
from kubekit.errors import TlsFailure, Unreachable
from kubekit.streams import Streams
from tests.kubekit.certificates import authority
from tests.kubekit.fakes import FakeApi, serving

HOST = "kube.example.net"
CA = authority()
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
PODS = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Resolving a name is noted and leads to an address that nobody may reach."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **more: Any) -> Any:
        if host == HOST:
            asked.append(host)
            host = "192.0.2.1"
        return real(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    fake = FakeApi().answer("GET /version", VERSION).answer("GET /api/v1/pods", PODS)
    with serving(fake, ssl_context=CA.server_context(tmp_path, host=HOST)) as found:
        yield found


def credentials(api: FakeApi, *addresses: str, host: str = HOST, **more: Any) -> Credentials:
    port = urlsplit(api.url).port
    return Credentials(server=f"https://{host}:{port}", ca_data=CA.certificate, token="t", addresses=addresses, **more)


def test_requests_go_to_the_checked_address_and_speak_to_the_name(api: FakeApi, no_names: list[str]) -> None:
    cluster = Cluster(credentials(api, "127.0.0.1"), connect_timeout_s=5)
    assert cluster.version() == VERSION
    assert api.last().headers["Host"].startswith(f"{HOST}:")
    assert no_names == []
    cluster.close()


async def test_streams_go_to_the_checked_address_and_speak_to_the_name(api: FakeApi, no_names: list[str]) -> None:
    async with Streams(credentials(api, "127.0.0.1")) as streams:
        assert await streams.list_page("Pod") == PODS
    assert api.last().headers["Host"].startswith(f"{HOST}:")
    assert no_names == []


async def test_the_next_address_is_tried_when_one_does_not_take_the_connection(api: FakeApi) -> None:
    given = credentials(api, "127.0.0.2", "127.0.0.1")
    cluster = Cluster(given, connect_timeout_s=5)
    assert cluster.version() == VERSION
    cluster.close()
    async with Streams(given) as streams:
        assert await streams.list_page("Pod") == PODS


def test_when_no_address_takes_it_nothing_was_sent(api: FakeApi) -> None:
    cluster = Cluster(credentials(api, "127.0.0.2", "127.0.0.3"), connect_timeout_s=5)
    with pytest.raises(Unreachable) as refused:
        cluster.create({"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}})
    assert not refused.value.maybe_done
    assert api.asked == []


async def test_the_certificate_is_still_judged_by_the_name(api: FakeApi) -> None:
    given = credentials(api, "127.0.0.1", host="other.example.net")
    with pytest.raises(TlsFailure):
        Cluster(given, connect_timeout_s=5).version()
    async with Streams(given) as streams:
        with pytest.raises(TlsFailure):
            await streams.list_page("Pod")
    named = credentials(api, "127.0.0.1", host="other.example.net", tls_server_name=HOST)
    assert Cluster(named, connect_timeout_s=5).version() == VERSION


def test_without_checked_addresses_the_name_is_resolved_as_ever(api: FakeApi, no_names: list[str]) -> None:
    with pytest.raises(Unreachable):
        Cluster(credentials(api), connect_timeout_s=0.2).version()
    assert no_names
