"""The programs of a running portal, what each needs, and in which order they stop."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import django

from mlportal import stamps
from mlportal.embedded import caddy, postgres, redis
from mlportal.env import Environment
from mlportal.installed import having
from mlportal.paths import ROOT
from mlportal.preflight import can_listen
from mlportal.program import Program, accepts, remove_socket
from mlportal.supervise import Supervised

_BACKENDS, _FRONT, _CLUSTER, _PORTAL = 1, 2, 3, 4


def supervised(
    environment: Environment, *, ssh: socket.socket | None = None, gateway: socket.socket | None = None
) -> list[Supervised]:
    """All programs for these settings, in the order in which they are worth starting.

    ``ssh`` is the listening socket of the entrance by SSH, ``gateway`` that of the gateway: they start with the first
    connection.
    """
    home = environment.home
    prepared = stamps.read(home.root / "stamps.json") == stamps.current(environment) and environment.database_embedded
    programs: list[Supervised] = []
    if environment.database_embedded:
        programs.append(Supervised(program=postgres.program(data=home.postgres_data, run=home.run), stage=_BACKENDS))
    if environment.redis_embedded:
        server = redis.program(data=home.redis_data, socket=home.redis_socket)
        programs.append(Supervised(program=server, stage=_BACKENDS))
    front = caddy.program(
        folder=home.root / "caddy",
        address=environment.http_address,
        port=environment.http_port,
        admin=home.caddy_admin_socket,
        web=home.web_socket,
        apps_domain=environment.apps_domain,
        hosts=home.hosts,
        gateway=home.gateway_socket,
    )
    programs.append(Supervised(program=front, stage=_FRONT))
    if environment.cluster_embedded:
        programs.append(Supervised(program=_localkube(environment), stage=_CLUSTER))
    if not prepared:
        # The first records include the cluster's address.
        task = _ours(environment, "prepare")
        programs.append(Supervised(program=task, stage=_PORTAL, needs=("postgres", "localkube"), once=True))
    programs.append(Supervised(program=_web(environment), stage=_PORTAL, needs=("prepare",)))
    # The first page comes first; these two wait for it and for what they would only complain about.
    needs = ("prepare", "postgres", "redis", "localkube", "web")
    for name in ("worker", "control"):
        ready = home.ready_file(name)
        task = _ours(
            environment,
            name,
            ready=ready.exists,
            tidy=partial(ready.unlink, missing_ok=True),
            load=preload_kubernetes,
        )
        programs.append(Supervised(program=task, stage=_PORTAL, needs=needs))
    for name, listener in (("sshgateway", ssh), ("gateway", gateway)):
        if listener is not None:
            task = _ours(environment, name, load=preload_kubernetes, wakes=listener, stop_wait_s=30.0)
            programs.append(Supervised(program=task, stage=_PORTAL, needs=needs))
    return programs


def _environ(environment: Environment) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "platform"))),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "mlportal.settings",
        "PORTAL_HOME": str(environment.home.root),
    }


def preload() -> None:
    """Import what all of the portal's own programs use."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "mlportal.settings"
    django.setup()
    for module in ("mlportal.celery", "mlportal.urls", "mlportal.programs", *having("routing"), *having("tasks")):
        import_module(module)


def preload_kubernetes() -> None:
    """Import the Kubernetes client for those that talk to clusters: half a second that the first page need not wait."""
    import_module("kubernetes.client.rest")


def _ours(
    environment: Environment,
    name: str,
    *,
    ready: Callable[[], bool] = lambda: True,
    tidy: Callable[[], None] = lambda: None,
    load: Callable[[], None] = preload,
    stop_wait_s: float = 15.0,
    wakes: socket.socket | None = None,
) -> Program:
    """A program that is a function of `mlportal.programs`; one that is woken gets its socket."""

    def call() -> None:
        getattr(import_module("mlportal.programs"), name)(*([] if wakes is None else [wakes]))

    return Program(
        name=name,
        argv=(sys.executable, "-m", "mlportal", name),
        call=call,
        preload=load,
        environ=_environ(environment),
        ready=ready,
        prepare=tidy,
        cleanup=tidy,
        stop_wait_s=stop_wait_s,
        wakes=wakes,
    )


def _web(environment: Environment) -> Program:
    path = environment.home.web_socket
    return _ours(environment, "web", ready=lambda: accepts(path), tidy=lambda: remove_socket(path))


def _localkube(environment: Environment) -> Program:
    home = environment.home
    folder = home.localkube
    ready_file = folder / "ready"

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        ready_file.unlink(missing_ok=True)

    return Program(
        name="localkube",
        argv=(
            *(sys.executable, "-m", "localkube", "serve", "--home", str(folder)),
            *("--listen", f"127.0.0.1:{_cluster_port(home.root / 'localkube.port')}"),
            *("--caddy-admin", str(home.caddy_admin_socket)),
            *("--hosts", str(home.hosts)),
            *("--images", str(ROOT / "docker" / "images.toml")),
        ),
        environ=_environ(environment),
        ready=ready_file.exists,
        prepare=prepare,
        stop_wait_s=45.0,
    )


def _cluster_port(file: Path) -> int:
    """A free port for the cluster's API, the same at each start while it stays free."""
    try:
        port = int(file.read_text(encoding="ascii"))
        if can_listen("127.0.0.1", port):
            return port
    except (OSError, ValueError):
        pass  # the first start, or a damaged note: choose one
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    file.write_text(f"{port}\n", encoding="ascii")
    return port
