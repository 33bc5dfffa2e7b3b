"""The portal's part of a dev instance: who may enter JupyterLab, and whether it is ready.

An extension of Jupyter Server (handlers) and an identity provider; the entrypoint switches both on.
"""

from __future__ import annotations

from typing import Any

from mlportal_jupyter.handlers import EnterHandler, ReadyHandler


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "mlportal_jupyter"}]


QUIET = ["@jupyterlab/apputils-extension:announcements"]
"""Parts of JupyterLab that would ask each person about news from outside at the first visit."""


def quiet_page(_handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
    """JupyterLab's page settings without the parts in ``QUIET``."""
    page_config["disabledExtensions"] = [*page_config.get("disabledExtensions", []), *QUIET]
    return page_config


def _load_jupyter_server_extension(server: Any) -> None:
    server.web_app.settings["page_config_hook"] = quiet_page
    server.web_app.add_handlers(".*$", [("/portal/ready", ReadyHandler), ("/portal/enter", EnterHandler)])
