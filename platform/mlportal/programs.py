"""The portal's own programs: web, worker, control, and the one-off preparation before them.

Each runs in a process of its own, forked from the supervisor after Django's apps were loaded.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import warnings
from importlib import import_module

import uvicorn
from celery.apps.worker import Worker  # noqa: F401 - loaded once, before the fork
from celery.exceptions import SecurityWarning
from celery.signals import worker_ready
from django.conf import settings
from django.core.management import call_command

from apps.core import control as loops
from apps.core import live, wake
from mlportal import prepare as preparation
from mlportal.celery import app
from mlportal.database import patience

BEAT_S = 20.0
WEB_PATIENCE_S = 10.0
"""So long a person waits for one answer of the database; then their page says that it is away."""


def prepare() -> None:
    """Tables, static files, first records."""
    sys.exit(preparation.run())


def web(listen: str = "") -> None:
    """Pages, REST and web sockets: on the unix socket that Caddy forwards to, or at ADDRESS:PORT.

    The addresses of people are believed as the proxy says them, so nobody else may reach either place: the socket has
    mode 0600, and in a cluster a network policy lets in the ingress controller alone.
    """
    # whitenoise hands over files as plain iterators; they are small and each browser asks once.
    warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
    config = uvicorn.Config(
        "mlportal.asgi:application",
        lifespan="off",
        proxy_headers=True,
        forwarded_allow_ips="*",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    config.load()
    patience.Connection.patience_s = WEB_PATIENCE_S
    listener = _port(listen) if listen else _unix_socket()
    wake.ring_sweep()  # a predecessor may have died between a commit and its hint
    uvicorn.Server(config).run(sockets=[listener])


def _unix_socket() -> socket.socket:
    # uvicorn itself would open the socket to everybody (0666).
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(settings.ENVIRONMENT.home.web_socket))
    settings.ENVIRONMENT.home.web_socket.chmod(0o600)
    return listener


def _port(listen: str) -> socket.socket:
    host, _colon, port = listen.rpartition(":")
    address = host.strip("[]")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, int(port)), family=family, backlog=2048)


def worker() -> None:
    """Celery, with threads: hints in, one reconcile each."""
    # It warns of root because pickled messages could run code; only JSON is accepted here.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker_ready.connect(lambda **_: settings.ENVIRONMENT.home.ready_file("worker").touch(), weak=False)
    live.send_from_own_loop()
    options = ("--pool", "threads", "-c", "8", "--without-mingle", "--without-gossip", "--without-heartbeat")
    app.worker_main(["-q", "worker", *options, "--loglevel", "WARNING"])


def sshgateway(listener: socket.socket | None = None, *, listen: str = "") -> None:
    """The entrance by SSH, at a socket or at ADDRESS:PORT. One that was woken ends when nobody is left."""
    import_module("apps.instances.sshgate.serving").run(
        listener or _port(listen), host_key=settings.PORTAL_SSH_HOST_KEY_FILE, stays=listener is None
    )


def gateway(listener: socket.socket | None = None, *, listen: str = "") -> None:
    """The way to instances by one static route, at a socket or at ADDRESS:PORT. One that was woken ends when nobody is
    left."""
    import_module("apps.instances.gateway.serving").run(listener or _port(listen), stays=listener is None)


def control() -> None:
    """Schedule, watch clusters, collect logs, sweep."""
    ready = settings.ENVIRONMENT.home.ready_file("control")
    ready.touch()

    async def alive(stop: asyncio.Event) -> None:
        """Something outside sees by the file's age whether the loops go round at all."""
        while not await loops.sleep(stop, BEAT_S):
            ready.touch()

    live.send_from_own_loop()
    loops.register("alive", alive)
    call_command("control")
