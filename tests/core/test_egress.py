"""User-given addresses: public ones only, whatever the spelling; resolved once, and connected to what was checked."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time

import pytest

from apps.core import egress
from apps.core.egress import EgressFailed, EgressRefused, check, is_allowed, is_public

INTERNAL = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "fd12::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "2002:7f00:1::",
    "2002:0a00:0001::1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "::127.0.0.1",
]


@pytest.mark.parametrize("text", INTERNAL)
def test_internal_and_special_addresses_are_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_public_addresses_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "[::1]", "[::ffff:7f00:1]", "localhost", "0"],
)
def test_every_spelling_of_loopback_is_refused(host: str) -> None:
    with pytest.raises((EgressRefused, EgressFailed)) as refused:
        check(f"http://{host}/", allow=())
    if isinstance(refused.value, EgressRefused):
        assert refused.value.code == "address_internal"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("ftp://example.org/", "url_scheme"),
        ("file:///etc/passwd", "url_scheme"),
        ("gopher://8.8.8.8/", "url_scheme"),
        ("//8.8.8.8/", "url_scheme"),
        ("http:///x", "url_scheme"),
        ("http://8.8.8.8@127.0.0.1/", "url_credentials"),
        ("http://user:secret@8.8.8.8/", "url_credentials"),
        ("http://8.8.8.8:99999/", "url_invalid"),
        ("http://[::1/", "url_invalid"),
        ("http://8.8.8.8/a b", "url_invalid"),
        ("http://8.8.8.8/\u2028x", "url_invalid"),
    ],
)
def test_what_is_not_a_plain_web_address_is_refused(url: str, code: str) -> None:
    with pytest.raises(EgressRefused) as refused:
        check(url, allow=("0.0.0.0/0", "::/0"))
    assert refused.value.code == code


def test_the_allow_list_names_hosts_addresses_and_networks() -> None:
    address = ipaddress.ip_address("10.1.2.3")
    assert is_allowed("x", address, ("10.1.0.0/16",))
    assert is_allowed("x", address, ("10.1.2.3",))
    assert is_allowed("Hooks.Internal", address, ("hooks.internal",))
    assert not is_allowed("x", address, ("10.2.0.0/16", "y", "not a network/99"))
    assert not is_allowed("x", ipaddress.ip_address("fd00::1"), ("10.0.0.0/8",))


def resolving(*answers: list[str]):
    """A DNS that gives another answer each time it is asked (rebinding)."""
    rounds = iter(answers)
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in next(rounds)]

    return getaddrinfo, asked


def test_one_internal_address_among_public_ones_refuses_the_host(monkeypatch) -> None:
    fake, _ = resolving(["8.8.8.8", "127.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", fake)
    with pytest.raises(EgressRefused):
        check("http://rebind.example/", allow=())


def test_the_name_is_resolved_once_and_the_checked_address_is_connected_to(monkeypatch) -> None:
    fake, asked = resolving(["8.8.8.8"], ["127.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", fake)
    connected: list[tuple[str, int]] = []

    def create_connection(address: tuple[str, int], *_: object, **__: object):
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", create_connection)
    with pytest.raises(EgressFailed):
        egress.post("http://rebind.example:81/x", body=b"", headers={})
    assert asked == ["rebind.example"]
    assert connected == [("8.8.8.8", 81)]


def test_a_receiver_that_sends_a_byte_now_and_then_holds_nobody(settings) -> None:
    settings.PORTAL_EGRESS_ALLOW = ("127.0.0.1",)
    over = threading.Event()

    def dribble(server: socket.socket) -> None:
        line, _peer = server.accept()
        with line, contextlib.suppress(OSError):
            while not over.wait(0.02):
                line.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=dribble, args=(server,))
        thread.start()
        begun = time.monotonic()
        with pytest.raises(EgressFailed):
            egress.post(f"http://127.0.0.1:{server.getsockname()[1]}/", body=b"", headers={}, total_s=0.3)
        took_s = time.monotonic() - begun
        over.set()
        thread.join()
    assert took_s < 5
