"""F42: a host leads to an instance when it is spelt exactly so, and nowhere otherwise."""

from __future__ import annotations

import uuid

import pytest

from apps.instances.gateway import pages
from apps.instances.gateway.places import LAB_PORT, Door
from tests.gateway.front import DOMAIN, HOST, PK, launch, places

HEX = PK.hex


@pytest.mark.parametrize("host", [HOST, f"{HOST}:8000", f"{HOST}:443", HOST.upper()])
def test_the_host_with_any_port_and_in_any_case(host: str) -> None:
    table = places()
    table.put(launch())
    found = table.at(host.encode())
    assert isinstance(found, Door)
    assert (found.port, found.checked) == (LAB_PORT, False)


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        ".",
        DOMAIN,
        f".{HOST}",
        f"{HOST}.",
        f"x.{HOST}",
        f"{HOST}.evil.net",
        f"{HOST}@evil.net",
        f"evil@{HOST}",
        f"{HOST}:",
        f"{HOST}:80:80",
        f"{HOST}:-1",
        f"{HOST}:99999999",
        f"{HOST}:8000 ",
        f" {HOST}",
        f"{HOST}\t",
        f"{HOST}/x",
        f"{HOST}?x",
        f"{HOST}#x",
        f"http://{HOST}",
        f"[{HOST}]",
        f"i-{HEX}",
        f"i-{HEX}.",
        f"i-{HEX}.{DOMAIN}x",
        f"i-{HEX}.x{DOMAIN}",
        f"i-{HEX}.apps.example",
        f"i-{HEX}..{DOMAIN}",
        f"i-{HEX}0.{DOMAIN}",
        f"i-{HEX[:-1]}.{DOMAIN}",
        f"i-{PK}.{DOMAIN}",
        f"i_{HEX}.{DOMAIN}",
        f"j-{HEX}.{DOMAIN}",
        f"p0--i-{HEX}.{DOMAIN}",
        f"p080--i-{HEX}.{DOMAIN}",
        f"p-i-{HEX}.{DOMAIN}",
        f"p8080-i-{HEX}.{DOMAIN}",
        f"p99999--i-{HEX}.{DOMAIN}",
        f"p8080--{HOST}:x",
        f"i-{HEX}%2e{DOMAIN}",
        f"i-{HEX}\\.{DOMAIN}",
        f"i-{HEX}.{DOMAIN}\r\nX: y",
        f"i-{HEX}.{DOMAIN},{HOST}",
        f"{HOST}\0",
        "i-١٢٣٤٥٦٧٨12345678123456781234567812345678." + DOMAIN,
    ],
)
def test_f42_every_other_spelling_leads_nowhere(host: str) -> None:
    table = places()
    table.put(launch())
    assert table.at(host.encode()) is pages.NOTHING_RUNS


@pytest.mark.parametrize("state", ["queued", "starting"])
def test_one_that_starts_is_said_to_start(state: str) -> None:
    table = places()
    table.put(launch(state=state))
    assert table.at(HOST.encode()) is pages.STARTS


def test_what_is_not_in_the_table_any_more_is_gone() -> None:
    table = places()
    other = uuid.uuid4()
    table.replace([launch(), launch(other)])
    table.replace([launch(other)])
    assert table.at(HOST.encode()) is pages.NOTHING_RUNS
    assert isinstance(table.at(f"i-{other.hex}.{DOMAIN}".encode()), Door)


def test_another_domain_or_scheme_counts_from_then_on() -> None:
    table = places()
    table.put(launch())
    table.put(launch(host=f"i-{HEX}.other.net", scheme="http"))
    assert table.at(HOST.encode()) is pages.NOTHING_RUNS
    found = table.at(f"i-{HEX}.other.net".encode())
    assert isinstance(found, Door) and b"Proto: http\r\n" in found.place.forwarded


@pytest.mark.parametrize(("language", "said"), [("zh-CN,zh;q=0.9", "zh-hans"), ("de", "en"), ("", "en")])
def test_pages_speak_the_browsers_language_and_load_nothing(language: str, said: str) -> None:
    answer = pages.answer(pages.NOTHING_RUNS, language=language, portal='https://p/"><script>')
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f'lang="{said}"'.encode() in body
    assert f"Content-Length: {len(body)}\r\n".encode() in head
    assert b"<script" not in body and b"Connection: close" in head


def test_only_pages_that_wait_for_something_ask_again() -> None:
    assert b"http-equiv" in pages.answer(pages.STARTS) and b"Retry-After" in pages.answer(pages.STARTS)
    assert b"http-equiv" not in pages.answer(pages.NOTHING_RUNS)
