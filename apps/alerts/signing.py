"""Signatures of webhooks as the Standard Webhooks specification defines them (standardwebhooks.com, version 1)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
SECRET_BYTES = 24


def new_secret() -> str:
    """A secret to give to the receiver: ``whsec_`` and 192 random bits in base64."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of ``webhook-signature``: ``v1,`` and base64 of HMAC-SHA256 over ``id.timestamp.body``.

    A secret with the prefix ``whsec_`` is base64, any other text is the key itself. ``timestamp`` in Unix seconds.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(secret), content, hashlib.sha256).digest()).decode()


def verify(secret: str, message_id: str, timestamp: int, body: bytes, header: str) -> bool:
    """Whether one of the header's signatures (separated by spaces) fits; in constant time each."""
    wanted = sign(secret, message_id, timestamp, body)
    return any(hmac.compare_digest(wanted, given) for given in header.split(" "))


def _key(secret: str) -> bytes:
    if secret.startswith(PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
