"""Receivers for what the portal sends out: a mail server and a webhook endpoint, both real, both on loopback."""

from __future__ import annotations

import email
import json
import threading
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from tests.journeys.portal import free_port


class _KeepMail:
    def __init__(self, box: list[Message]) -> None:
        self._box = box

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        self._box.append(email.message_from_bytes(envelope.content))
        return "250 kept"


@dataclass
class MailSink:
    """An SMTP server that keeps what it gets."""

    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._port = free_port()
        self._server = Controller(_KeepMail(self.messages), hostname="127.0.0.1", port=self._port)

    def start(self) -> None:
        """Listen on a free port."""
        self._server.start()

    @property
    def url(self) -> str:
        """As PORTAL_SMTP_URL takes it."""
        return f"smtp://127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Close."""
        self._server.stop()

    def about(self, word: str) -> list[Message]:
        """Messages whose subject contains ``word``."""
        return [message for message in self.messages if word in str(message["Subject"])]


@dataclass(frozen=True)
class Call:
    """One request that the webhook endpoint got."""

    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class WebhookSink:
    """An HTTP endpoint that answers 200 and keeps what it gets; ``refuse_next`` answers 500 that many times first."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.refuse_next = 0
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                refused = sink.refuse_next > 0
                if refused:
                    sink.refuse_next -= 1
                else:
                    sink.calls.append(Call(headers={k.lower(): v for k, v in self.headers.items()}, body=body))
                self.send_response(500 if refused else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Silence."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def start(self) -> None:
        """Serve in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self._server.server_port}/alarm"

    def stop(self) -> None:
        """Close."""
        self._server.shutdown()
        self._server.server_close()
