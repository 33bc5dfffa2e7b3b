"""Alarms leave once, signed, to allowed addresses only; what fails says why and whether to try again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import smtplib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.conf import settings
from django.core import mail
from django.utils import timezone

from apps.alerts import delivery, signing
from apps.core import egress, outbox
from apps.core.models import OutboxMessage

pytestmark = pytest.mark.django_db
SECRET = "whsec_c2VjcmV0"


class Receiver(HTTPServer):
    """Keeps what it is sent; answers ``status``."""

    status = 204

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?x=1"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", self.server.url)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def loopback(settings) -> None:
    settings.PORTAL_EGRESS_ALLOW = ("127.0.0.0/8",)


def deliver() -> OutboxMessage:
    message = OutboxMessage.objects.as_system().get()
    outbox.deliver_one(message.pk)
    message.refresh_from_db()
    return message


def webhook(receiver: Receiver, *, secret: str = SECRET) -> OutboxMessage:
    body = {"type": "run.failed", "data": {"flow": "夜间"}}
    assert delivery.put_webhook(key="cause", url=receiver.url, body=body, signing_secret=secret)
    return deliver()


def test_a_webhook_arrives_signed_with_the_rows_id(receiver, loopback) -> None:
    message = webhook(receiver)
    assert message.delivered_at is not None
    ((headers, body),) = receiver.got
    assert json.loads(body) == {"type": "run.failed", "data": {"flow": "夜间"}}
    assert headers["webhook-id"] == str(message.pk)
    content = f"{message.pk}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.new(b"secret", content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    assert signing.verify(
        "whsec_c2VjcmV0", str(message.pk), int(headers["webhook-timestamp"]), body, f"v1,x v1,{wanted}"
    )
    assert abs(int(headers["webhook-timestamp"]) - timezone.now().timestamp()) < 5


def test_without_a_secret_there_is_no_signature(receiver, loopback) -> None:
    webhook(receiver, secret="")
    assert "webhook-signature" not in receiver.got[0][0]


def test_an_internal_address_is_refused_for_good_and_nothing_is_sent(receiver) -> None:
    message = webhook(receiver)
    assert receiver.got == []
    assert (message.due_at, message.delivered_at) == (None, None)
    assert message.last_error.startswith("address_internal")


@pytest.mark.parametrize(("status", "tried_again"), [(500, True), (302, True), (429, True), (410, False)])
def test_an_answer_other_than_2xx_is_a_failure(receiver, loopback, status: int, tried_again: bool) -> None:
    receiver.status = status
    message = webhook(receiver)
    assert len(receiver.got) == 1
    assert str(status) in message.last_error
    assert (message.due_at is not None) is tried_again


def test_the_same_cause_is_announced_once(receiver, loopback) -> None:
    webhook(receiver)
    assert delivery.put_webhook(key="cause", url=receiver.url, body={}) is False
    outbox.deliver_one(OutboxMessage.objects.as_system().get().pk)
    assert len(receiver.got) == 1


def test_a_repeated_delivery_carries_the_same_id(receiver, loopback) -> None:
    receiver.status = 503
    message = webhook(receiver)
    OutboxMessage.objects.as_system().update(due_at=timezone.now())
    receiver.status = 200
    outbox.deliver_one(message.pk)
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert len(receiver.got) == 2


@pytest.fixture
def smtp(monkeypatch):
    environment = replace(settings.ENVIRONMENT, smtp_url="smtp://mail.example:25")
    monkeypatch.setattr(settings, "ENVIRONMENT", environment)


def send(**more: object) -> OutboxMessage:
    given = {"to": ["a@example.org"], "subject": "The flow x failed", "text": "why", **more}
    assert delivery.put_mail(key="cause", **given)  # type: ignore[arg-type]
    return deliver()


def test_a_mail_carries_the_rows_id_and_no_header_can_be_injected(smtp) -> None:
    message = send(subject="failed\r\nBcc: everybody@example.org")
    (sent,) = mail.outbox
    assert sent.extra_headers["Message-ID"] == f"<{message.pk}@127.0.0.1>"
    assert sent.subject == "failed Bcc: everybody@example.org"
    assert sent.recipients() == ["a@example.org"]
    assert message.delivered_at is not None


def test_a_refused_address_is_noted_and_tried_again_while_the_others_get_their_one_mail(smtp, monkeypatch) -> None:
    """As a server does: a mail of which it takes one recipient is taken, so one mail to all would hide the refusal."""
    sent: list[str] = []

    def take_all_but_ben(self: mail.EmailMessage) -> None:
        refused = {address: (450, b"later") for address in self.to if address == "ben@example.org"}
        if len(refused) == len(self.to):
            raise smtplib.SMTPRecipientsRefused(refused)
        sent.extend(address for address in self.to if address not in refused)

    monkeypatch.setattr(delivery.EmailMessage, "send", take_all_but_ben)
    given = {"subject": "The flow x failed", "text": "why"}
    to = ["ada@example.org", "ben@example.org", "eve@example.org"]
    assert delivery.put_mail(key="cause", to=to, **given)
    assert not delivery.put_mail(key="cause", to=to, **given)
    for message in OutboxMessage.objects.as_system():
        outbox.deliver_one(message.pk)
    assert sorted(sent) == ["ada@example.org", "eve@example.org"]
    (open_,) = OutboxMessage.objects.as_system().filter(delivered_at__isnull=True)
    assert open_.payload["to"] == ["ben@example.org"]
    assert "ben@example.org: 450" in open_.last_error
    assert open_.due_at is not None


def test_without_a_mail_server_it_says_so_and_gives_up() -> None:
    message = send()
    assert "PORTAL_SMTP_URL" in message.last_error
    assert message.due_at is None


@pytest.mark.parametrize(
    ("error", "tried_again"),
    [
        (smtplib.SMTPRecipientsRefused({"a@example.org": (550, b"no such user")}), False),
        (smtplib.SMTPRecipientsRefused({"a@example.org": (451, b"later")}), True),
        (smtplib.SMTPDataError(552, b"too big"), True),
        (ConnectionRefusedError("refused"), True),
    ],
)
def test_mail_failures_are_told_and_retried_when_that_can_help(smtp, monkeypatch, error, tried_again: bool) -> None:
    def fail(self: object) -> None:
        raise error

    monkeypatch.setattr(delivery.EmailMessage, "send", fail)
    message = send()
    assert message.last_error
    assert (message.due_at is not None) is tried_again


def test_a_redirect_to_an_internal_address_is_not_followed(receiver, monkeypatch) -> None:
    """The first address is allowed, the place that it points to is not even looked up."""
    receiver.status = 302
    looked_up: list[str] = []
    real = egress.check

    def check(url: str) -> egress.Target:
        looked_up.append(url)
        return real(url, allow=("127.0.0.0/8",))

    monkeypatch.setattr(egress, "check", check)
    webhook(receiver)
    assert looked_up == [receiver.url]
