"""The portal's own programs: web, worker, control, and the one-off preparation before them.

Each runs in a process of its own, forked from the supervisor after Django's apps were loaded.
"""

from __future__ import annotations

import socket
import sys
import warnings

import uvicorn
from celery.apps.worker import Worker  # noqa: F401 - loaded once, before the fork
from celery.exceptions import SecurityWarning
from celery.signals import worker_ready
from django.conf import settings
from django.core.management import call_command

from apps.core import wake
from mlportal import prepare as preparation
from mlportal.celery import app


def prepare() -> None:
    """Tables, static files, first records."""
    sys.exit(preparation.run())


def web() -> None:
    """Pages, REST and web sockets on the unix socket that Caddy forwards to."""
    # whitenoise hands over files as plain iterators; they are small and each browser asks once.
    warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
    config = uvicorn.Config(
        "mlportal.asgi:application",
        lifespan="off",
        proxy_headers=True,
        forwarded_allow_ips="*",  # only Caddy reaches the socket
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    config.load()
    # uvicorn itself would open the socket to everybody (0666).
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(settings.ENVIRONMENT.home.web_socket))
    settings.ENVIRONMENT.home.web_socket.chmod(0o600)
    wake.ring_sweep()  # a predecessor may have died between a commit and its hint
    uvicorn.Server(config).run(sockets=[listener])


def worker() -> None:
    """Celery, with threads: hints in, one reconcile each."""
    # It warns of root because pickled messages could run code; only JSON is accepted here.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker_ready.connect(lambda **_: settings.ENVIRONMENT.home.ready_file("worker").touch(), weak=False)
    options = ("--pool", "threads", "-c", "8", "--without-mingle", "--without-gossip", "--without-heartbeat")
    app.worker_main(["-q", "worker", *options, "--loglevel", "WARNING"])


def control() -> None:
    """Schedule, watch clusters, collect logs, sweep."""
    settings.ENVIRONMENT.home.ready_file("control").touch()
    call_command("control")
