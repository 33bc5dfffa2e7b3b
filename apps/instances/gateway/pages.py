"""What the gateway says in place of an instance: a short page in plain words, in the browser's language."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from http import HTTPStatus

from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

RETRY_S = 2


@dataclass(frozen=True)
class Said:
    """A status with its words; ``again``: the page asks again by itself."""

    status: int
    title: str
    text: str
    again: bool = False


NOTHING_RUNS = Said(
    404,
    gettext_noop("No instance runs at this address"),
    gettext_noop("If it is yours, start it in the portal and open it from there."),
)
STARTS = Said(
    503, gettext_noop("The instance is starting"), gettext_noop("This page opens it as soon as it answers."), again=True
)
NO_ANSWER = Said(
    502,
    gettext_noop("The instance does not answer"),
    gettext_noop("It runs, but nothing listened or the cluster let nobody through. Try again; its page says more."),
)
TOO_MANY = Said(
    503,
    gettext_noop("Too much is open"),
    gettext_noop("This instance has as many connections as it may. Close some of its tabs."),
)
NOT_LET_IN = Said(
    403,
    gettext_noop("This port is private"),
    gettext_noop("Only its owner and the people whom it is shared with get in. Open it from its page in the portal."),
)
NOT_UNDERSTOOD = Said(400, gettext_noop("The request was not understood"), gettext_noop("It is not good HTTP/1.1."))
TOO_LARGE = Said(
    431, gettext_noop("The request is too large"), gettext_noop("Its header fields are larger than 64 kB, or too many.")
)
BEGINS_AGAIN = Said(
    503, gettext_noop("The gateway is restarting"), gettext_noop("This page asks again by itself."), again=True
)


def answer(said: Said, *, language: str = "en", portal: str = "", closes: bool = True) -> bytes:
    """The whole answer. It may not be stored or framed, and loads nothing."""
    with translation.override("zh-hans" if language.lower().startswith("zh") else "en"):
        title, text, link = _(said.title), _(said.text), _("To the portal")
        code = translation.get_language() or "en"
    more = f'<meta http-equiv="refresh" content="{RETRY_S}">' if said.again else ""
    way = f'<p><a href="{escape(portal, quote=True)}">{escape(link)}</a></p>' if portal else ""
    body = (
        f'<!doctype html><html lang="{code}"><head><meta charset="utf-8"><title>{escape(title)}</title>{more}'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:20vh auto 0;padding:0 1.5rem}"
        "h1{font-size:1.4rem}</style></head>"
        f"<body><h1>{escape(title)}</h1><p>{escape(text)}</p>{way}</body></html>\n"
    ).encode()
    head = (
        f"HTTP/1.1 {said.status} {HTTPStatus(said.status).phrase}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
        f"{f'Retry-After: {RETRY_S}' + chr(13) + chr(10) if said.again else ''}"
        f"Connection: {'close' if closes else 'keep-alive'}\r\n\r\n"
    ).encode()
    return head + body
