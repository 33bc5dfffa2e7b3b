"""The web sockets of pages: who gets one, and what becomes of those who misuse it."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError

from apps.core import consumers, control
from mlportal.routing import websocket_urlpatterns
from tests.tenants import make

pytestmark = pytest.mark.django_db(transaction=True)
WAIT_S = 90


async def opened(path: str, user: Any) -> tuple[ApplicationCommunicator, dict[str, Any]]:
    """A web socket as the outer layers hand it on (the person is known), and the answer to its opening."""
    scope = {"type": "websocket", "path": path, "headers": [], "query_string": b"", "subprotocols": [], "user": user}
    found = ApplicationCommunicator(URLRouter(websocket_urlpatterns()), scope)
    await found.send_input({"type": "websocket.connect"})
    return found, await found.receive_output(timeout=WAIT_S)


@pytest.mark.parametrize(("path", "code"), [("/live/", 4401), ("/nowhere", 4404), ("/live/more", 4404), ("/", 4404)])
async def test_strangers_and_addresses_that_are_none_are_refused_without_a_fault(path: str, code: int) -> None:
    found, answer = await opened(path, AnonymousUser())
    assert (answer["type"], answer["code"]) == ("websocket.close", code)
    await found.send_input({"type": "websocket.disconnect", "code": code})
    await found.wait(timeout=WAIT_S)


@pytest.mark.parametrize("sent", [{"text": "{bad"}, {"text": "{}"}, {"bytes": b"\x00\xff"}])
async def test_whoever_speaks_is_shown_out(sent: dict[str, Any]) -> None:
    found, answer = await opened("/live/", await control.in_thread(make.user))
    assert answer["type"] == "websocket.accept"
    await found.send_input({"type": "websocket.receive", **sent})
    answer = await found.receive_output(timeout=WAIT_S)
    assert (answer["type"], answer["code"]) == ("websocket.close", 4400)
    await found.send_input({"type": "websocket.disconnect", "code": 4400})
    await found.wait(timeout=WAIT_S)


async def test_a_page_whose_rights_cannot_be_read_hears_no_more_and_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumers, "RECHECK_S", 0.01)
    rights = iter([set()])

    def read(_pk: Any) -> set[str]:
        for known in rights:
            return known
        raise OperationalError("the server has not answered")

    monkeypatch.setattr(consumers, "_groups", read)
    found, answer = await opened("/live/", await control.in_thread(make.user))
    assert answer["type"] == "websocket.accept"
    answer = await found.receive_output(timeout=WAIT_S)
    assert (answer["type"], answer["code"]) == ("websocket.close", 4503)
    await found.send_input({"type": "websocket.disconnect", "code": 4503})
    await found.wait(timeout=WAIT_S)
