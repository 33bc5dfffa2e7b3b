"""The portal's part of a dev instance: who may enter JupyterLab, and whether it is ready.

An extension of Jupyter Server (handlers) and an identity provider; the entrypoint switches both on.
"""

from __future__ import annotations

import logging
import re
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


def _link_jupyter_server_extension(server: Any) -> None:
    """Before any extension loads. Terminals are no login shells: those forget the image's PATH (/etc/profile)."""
    server.terminado_settings = {"shell_command": ["/bin/bash"]}


_IN_ADDRESS = re.compile(r"((?:token|ticket|key)=)[^&\s]+")


class _NoSecrets(logging.Filter):
    """A key that somebody put into an address does not open anything, but it must not stand in the log either."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        cleaned = _IN_ADDRESS.sub(r"\1[secret]", text)
        if cleaned != text:
            record.msg, record.args = cleaned, ()
        return True


def _load_jupyter_server_extension(server: Any) -> None:
    for handler in server.log.handlers:
        handler.addFilter(_NoSecrets())
    server.web_app.settings["page_config_hook"] = quiet_page
    server.web_app.add_handlers(".*$", [("/portal/ready", ReadyHandler), ("/portal/enter", EnterHandler)])
