"""Web socket addresses, gathered from every app's `routing.py` (a list `websocket_urlpatterns`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.urls import re_path

from mlportal import installed


def websocket_urlpatterns() -> list[object]:
    """All web socket routes. Called once Django's apps are loaded."""
    found = [route for name in installed.having("routing") for route in import_module(name).websocket_urlpatterns]
    nothing: Any = import_module("apps.core.consumers").NothingHere.as_asgi()
    return [*found, re_path("", nothing)]
