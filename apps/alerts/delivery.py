"""Outbox handlers: mail by SMTP, webhooks through the egress client. Each raises ``DeliveryFailed`` with what happened.

A delivery may be repeated after a crash between sending and noting it, so both carry the outbox row's id, by which a
receiver recognises a repetition: ``Message-ID`` of a mail, ``webhook-id`` of a webhook.

Payload of ``alert.mail``: ``{to: [address], subject, text}``, one address each. Payload of ``alert.webhook``:
``{url, body: object, secret: encrypted text?}``; the secret is encrypted like a secret column, so that the table shows
none.
"""

from __future__ import annotations

import hashlib
import json
import smtplib
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage

from apps.alerts import signing
from apps.core import egress, outbox, secret
from apps.core.models import OutboxMessage
from apps.core.outbox import DeliveryFailed

MAIL, WEBHOOK = "alert.mail", "alert.webhook"
_GONE = frozenset({404, 405, 410})


def put_mail(*, key: str, to: Iterable[str], subject: str, text: str, queue_id: UUID | None = None) -> bool:
    """Queue a mail to each address with the current transaction; ``key`` names its cause.

    A cause is announced to an address once. Each has a message of its own: a server may take some and refuse others,
    and the refused ones are tried again, or noted, without writing to the others twice.
    """
    made = [
        outbox.put(
            topic=MAIL,
            key=f"{key}:{_digest(address)}",
            payload={"to": [address], "subject": subject, "text": text},
            queue_id=queue_id,
        )
        for address in to
    ]
    return any(made)


def _digest(address: str) -> str:
    """An address in a key, which has less room than the longest address."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def put_webhook(
    *, key: str, url: str, body: Mapping[str, Any], signing_secret: str = "", queue_id: UUID | None = None
) -> bool:
    """Queue a webhook likewise. ``signing_secret`` (see `signing.new_secret`) is encrypted before it is stored."""
    payload: dict[str, Any] = {"url": url, "body": dict(body)}
    if signing_secret:
        payload["secret"] = secret.encrypt(signing_secret)
    return outbox.put(topic=WEBHOOK, key=key, payload=payload, queue_id=queue_id)


def send_mail(message: OutboxMessage) -> None:
    """Deliver by SMTP. An address that the server refuses for good ends the delivery, everything else is retried."""
    if not settings.ENVIRONMENT.smtp_url:
        raise DeliveryFailed("no mail server is set: give PORTAL_SMTP_URL", permanent=True)
    payload = message.payload
    domain = urlsplit(settings.PORTAL_ORIGIN).hostname or "localhost"
    mail = EmailMessage(
        subject=" ".join(str(payload["subject"]).split()),
        body=str(payload["text"]),
        to=[str(address) for address in payload["to"]],
        headers={"Message-ID": f"<{message.pk}@{domain}>", "Auto-Submitted": "auto-generated"},
    )
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _text in error.recipients.values()]
        text = "; ".join(f"{address}: {code}" for address, (code, _text) in error.recipients.items())
        raise DeliveryFailed(f"refused: {text}", permanent=all(500 <= code < 600 for code in codes)) from error
    except smtplib.SMTPResponseException as error:
        raise DeliveryFailed(f"the mail server answered {error.smtp_code}: {error.smtp_error!r}") from error
    except (smtplib.SMTPException, OSError) as error:
        raise DeliveryFailed(f"the mail server did not take it: {error}") from error


def send_webhook(message: OutboxMessage) -> None:
    """POST as JSON. Delivered means an answer of 2xx; redirects are not followed and count as failures."""
    payload = message.payload
    body = json.dumps(payload["body"], ensure_ascii=False, separators=(",", ":")).encode()
    timestamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "mlportal",
        "webhook-id": str(message.pk),
        "webhook-timestamp": str(timestamp),
    }
    if payload.get("secret"):
        key = secret.decrypt(payload["secret"])
        headers["webhook-signature"] = signing.sign(key, str(message.pk), timestamp, body)
    try:
        answer = egress.post(str(payload["url"]), body=body, headers=headers)
    except egress.EgressRefused as error:
        raise DeliveryFailed(f"{error.code}: {error}", permanent=True) from error
    except egress.EgressFailed as error:
        raise DeliveryFailed(str(error)) from error
    if not 200 <= answer.status < 300:
        raise DeliveryFailed(f"the receiver answered {answer.status}", permanent=answer.status in _GONE)


def register() -> None:
    """Called once from ``AppConfig.ready``."""
    outbox.register(MAIL, send_mail)
    outbox.register(WEBHOOK, send_webhook)
