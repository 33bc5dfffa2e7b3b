"""Addresses of webhooks are secrets (whoever knows a chat's hook may write there): hidden from those who only look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

HIDDEN = "•••"


def address(url: str) -> str:
    """Where it leads, without path, query and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{HIDDEN}"


def alerts(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of a document with their addresses hidden."""
    return [{**rule, "url": address(rule["url"])} if rule.get("url") else rule for rule in rules]


def document(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A document with the addresses in it hidden."""
    return {**stored, "alerts": alerts(stored["alerts"])}
