"""The portal's part of a dev instance: who may enter JupyterLab, and whether it is ready.

An extension of Jupyter Server (handlers) and an identity provider; the entrypoint switches both on.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from typing import Any

from tornado.ioloop import PeriodicCallback

from mlportal_jupyter.handlers import EnterHandler, ReadyHandler
from mlportal_jupyter.identity import TOO_MANY


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
    server.terminado_settings = {"shell_command": [os.environ.get("SHELL") or "/bin/bash"]}


_IN_ADDRESS = re.compile(r"((?:token|ticket|key)=)[^&\s]+")


class _NoSecrets(logging.Filter):
    """A key that somebody put into an address does not open anything, but it must not stand in the log either."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        cleaned = _IN_ADDRESS.sub(r"\1[secret]", text)
        if cleaned != text:
            record.msg, record.args = cleaned, ()
        return True


LOOK_MS = 500
"""How often open connections are held against the key: one look at a file each time."""


def _close_when_told_to_end(server: Any) -> None:
    """The key dies with the pod's notice, not with its end: programs that save may take all of the grace period."""
    stop = signal.getsignal(signal.SIGTERM)

    def end(number: int, frame: Any) -> None:
        server.identity_provider.key.close()
        server.io_loop.add_callback_from_signal(server.identity_provider.close_old_sockets)
        if callable(stop):
            stop(number, frame)

    signal.signal(signal.SIGTERM, end)


def _log_no_flood(server: Any) -> None:
    """Guesses beyond the limit stand in the log once per address (see `identity`), not once each."""
    settings = server.web_app.settings
    log_request = settings["log_function"]
    settings["log_function"] = lambda handler: handler.get_status() == TOO_MANY or log_request(handler)


def _load_jupyter_server_extension(server: Any) -> None:
    _log_no_flood(server)
    _close_when_told_to_end(server)
    PeriodicCallback(server.identity_provider.close_old_sockets, LOOK_MS).start()
    for handler in server.log.handlers:
        handler.addFilter(_NoSecrets())
    server.web_app.settings["page_config_hook"] = quiet_page
    server.web_app.add_handlers(".*$", [("/portal/ready", ReadyHandler), ("/portal/enter", EnterHandler)])
