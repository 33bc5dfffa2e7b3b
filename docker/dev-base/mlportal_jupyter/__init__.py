"""The portal's part of a dev instance: who may enter JupyterLab, and whether it is ready.

An extension of Jupyter Server (handlers) and an identity provider; the entrypoint switches both on.
"""

from __future__ import annotations

from typing import Any

from mlportal_jupyter.handlers import EnterHandler, ReadyHandler


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "mlportal_jupyter"}]


def _load_jupyter_server_extension(server: Any) -> None:
    server.web_app.add_handlers(".*$", [("/portal/ready", ReadyHandler), ("/portal/enter", EnterHandler)])
