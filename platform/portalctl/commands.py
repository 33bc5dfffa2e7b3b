"""What each command does: a few REST calls and what to print. Functions get the portal and the parsed words."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from kubekit.errors import SpecError
from kubekit.quantities import parse_bytes
from portalctl import account, show
from portalctl.rest import Portal, Refused

POLL_S = 0.5
RUN_OVER = {"succeeded", "failed", "cancelled", "skipped"}
INSTANCE_SETTLED = {"running", "failed", "stopped", "unreachable"}
Command = Callable[[Portal, argparse.Namespace], int]


class Usage(Exception):
    """The words of the command cannot be carried out; the text says which."""


def say(text: str) -> None:
    """A line for the person or program that called."""
    sys.stdout.write(text + "\n")


def find(portal: Portal, kind: str, name: str) -> dict[str, Any]:
    """An object by id, ``NAME`` or ``queue/NAME``. Raises ``Usage`` when there is none or more than one."""
    queue, _, plain = name.rpartition("/")
    wanted = [
        row
        for row in portal.items(kind, queue=queue or None)
        if name == row["id"] or (row["name"] == plain and (not queue or row["queue"] == queue))
    ]
    if not wanted:
        raise Usage(f"There is no {kind[:-1]} {name!r} that you may see. List them: portalctl {kind[:-1]} list")
    if len(wanted) > 1:
        places = ", ".join(f"{row['queue']}/{row['name']}" for row in wanted)
        raise Usage(f"{name!r} stands for several: {places}. Say QUEUE/NAME.")
    return wanted[0]


# --- account -----------------------------------------------------------------------------------------------------


def login(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Ask for name and password, keep a token of one's own."""
    try:
        name = options.user or input("Name: ")
        password = environ.get("PORTAL_PASSWORD") or getpass.getpass("Password: ")
    except EOFError as error:
        raise Usage(
            "Name and password are asked for at a terminal. Without one: --user NAME, and the variable PORTAL_PASSWORD."
        ) from error
    body = {"name": f"portalctl on {socket.gethostname()}"}
    made = Portal(options.address).call("POST", "tokens", body, basic=(name, password)).json
    path = account.keep(Portal(options.address, made["token"]), environ)
    say(f"Signed in as {name} until {made['expires_at'][:10]}; the token is in {path}.")
    return 0


# --- any kind ----------------------------------------------------------------------------------------------------


def list_of(kind: str, *columns: str) -> Command:
    """``list``: a table, or JSON."""

    def run(portal: Portal, options: argparse.Namespace) -> int:
        queue = getattr(options, "queue", None)
        rows = list(portal.items(kind, queue=queue, flow=getattr(options, "flow", None)))
        say(show.as_json(rows) if options.json else show.table(rows, columns))
        return 0

    return run


def show_one(kind: str) -> Command:
    """``show``: the object as the API tells it."""

    def run(portal: Portal, options: argparse.Namespace) -> int:
        found = find(portal, kind, options.name)
        say(show.as_json(portal.call("GET", f"{kind}/{found['id']}").json))
        return 0

    return run


def act(kind: str, verb: str) -> Command:
    """An action without a body: ``stop``, ``pause``, ``cancel`` …"""

    def run(portal: Portal, options: argparse.Namespace) -> int:
        found = find(portal, kind, options.name)
        portal.call("POST", f"{kind}/{found['id']}/{verb}")
        if getattr(options, "wait", False):
            return wait_for_instance(portal, found["id"])
        say(show.state(portal.call("GET", f"{kind}/{found['id']}").json))
        return 0

    return run


def delete(kind: str) -> Command:
    """``delete``: only with ``--yes``."""

    def run(portal: Portal, options: argparse.Namespace) -> int:
        if not options.yes:
            raise Usage(f"Nothing was deleted. Say --yes to delete the {kind[:-1]} {options.name!r}.")
        found = find(portal, kind, options.name)
        portal.call("DELETE", f"{kind}/{found['id']}")
        say(f"{found['name']}: is being deleted")
        return 0

    return run


# --- instances ---------------------------------------------------------------------------------------------------


def create_instance(portal: Portal, options: argparse.Namespace) -> int:
    """Make and start an instance; ``--wait`` until it runs."""
    queue = options.queue or _only_queue(portal)
    what = {"own_image": options.own_image} if options.own_image else {"image": options.image}
    body = {"name": options.name or "", **what, "size": options.size, "queue": queue}
    body |= set_up(options)
    if options.ends:
        body["ends_at"] = options.ends
    if mounts := [mount(text) for text in options.volume]:
        body["volumes"] = mounts
    made = portal.call("POST", "instances", body, key=options.key).json
    if options.wait:
        return wait_for_instance(portal, made["id"])
    say(show.state(made))
    return 0


def set_up(options: argparse.Namespace) -> dict[str, Any]:
    """Variables, start-up script, shared memory and time zone, as far as they were said."""
    found: dict[str, Any] = {}
    if options.env:
        found["env"] = dict(_assignment("--env", text) for text in options.env)
    if options.script is not None:
        try:
            found["script"] = sys.stdin.read() if options.script == "-" else Path(options.script).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"--script {options.script}: {error}") from error
    if options.shm is not None:
        found["shm_bytes"] = size_in_bytes("--shm", options.shm)
    if options.time_zone is not None:
        found["time_zone"] = options.time_zone
    return found


def size_in_bytes(option: str, text: str) -> int:
    """A size as Kubernetes writes it (10Gi). Raises ``Usage``."""
    try:
        return parse_bytes(text)
    except SpecError as error:
        raise Usage(f"{option} {text!r}: {error}") from error


def wait_for_instance(portal: Portal, pk: str) -> int:
    """Tell each state until it settles; 0 when it is where it was sent."""
    told = ""
    while True:
        item = portal.patiently(f"instances/{pk}").json
        if item["state"] != told:
            say(show.state(item))
            told = item["state"]
        if item["state"] in INSTANCE_SETTLED:
            if item["state"] == "running":
                say(item["url"])
            return 0 if item["state"] in {"running", "stopped"} else 1
        time.sleep(POLL_S)


def instance_key(portal: Portal, options: argparse.Namespace) -> int:
    """Print the launch's key; the portal notes that it was asked for."""
    found = find(portal, "instances", options.name)
    say(portal.call("GET", f"instances/{found['id']}/key").json["key"])
    return 0


def _only_queue(portal: Portal) -> str:
    queues = [row["name"] for row in portal.items("queues")]
    if len(queues) != 1:
        raise Usage(f"Say which queue: --queue {'|'.join(queues) or 'NAME'}")
    return str(queues[0])


def mount(text: str) -> dict[str, Any]:
    parts = text.split(":")
    if len(parts) not in {2, 3} or (len(parts) == 3 and parts[2] != "ro"):
        raise Usage(f"--volume {text!r}: say VOLUME:/path or VOLUME:/path:ro")
    return {"volume": parts[0], "path": parts[1], "read_only": len(parts) == 3}


# --- volumes -----------------------------------------------------------------------------------------------------


def create_volume(portal: Portal, options: argparse.Namespace) -> int:
    """Make a data volume; the size as Kubernetes writes it (10Gi)."""
    size = size_in_bytes("--size", options.size)
    body = {"name": options.name, "queue": options.queue or _only_queue(portal), "size_bytes": size}
    say(show.state(portal.call("POST", "volumes", body, key=options.key).json))
    return 0


# --- flows and runs ----------------------------------------------------------------------------------------------


def create_flow(portal: Portal, options: argparse.Namespace) -> int:
    """Save a flow from a YAML or JSON file; ``--update`` saves the next version of the one with that name."""
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
        document = yaml.safe_load(text)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise Usage(f"{options.file} cannot be read as a flow: {error}") from error
    if not isinstance(document, dict):
        raise Usage(f"{options.file} holds no flow: a mapping with name, queue and nodes is needed.")
    if options.update:
        found = find(portal, "flows", f"{document.get('queue', '')}/{document.get('name', '')}".strip("/"))
        portal.call("PUT", f"flows/{found['id']}", document)
        say(f"{found['name']}: saved as the next version")
        return 0
    made = portal.call("POST", "flows", document, key=options.key).json
    say(f"{made['name']}: saved, id {made['id']}")
    if made.get("webhook_secret"):
        say(f"Its webhooks are signed with this secret, shown once: {made['webhook_secret']}")
    return 0


def run_flow(portal: Portal, options: argparse.Namespace) -> int:
    """Start a run; with ``--wait`` the exit status is the run's. The same ``--key`` never starts a second run."""
    flow = find(portal, "flows", options.name)
    body = {"parameters": dict(_assignment("--param", text) for text in options.param)}
    run = portal.call("POST", f"flows/{flow['id']}/run", body, key=options.key).json
    say(f"run {run['id']}")
    if not (options.wait or options.logs):
        return 0
    return follow_run(portal, run["id"], logs=options.logs)


def follow_run(portal: Portal, pk: str, *, logs: bool) -> int:
    """Wait until the run is over, printing the log as it grows; 0 when it succeeded."""
    offsets: dict[str, int] = {}
    while True:
        run = portal.patiently(f"runs/{pk}").json
        if logs:
            _print_logs(portal, pk, offsets)
        if run["state"] in RUN_OVER:
            sys.stderr.write(show.state(run) + "\n")
            return 0 if run["state"] == "succeeded" else 1
        time.sleep(POLL_S)


def run_log(portal: Portal, options: argparse.Namespace) -> int:
    """The log of every attempt of a run."""
    portal.call("GET", f"runs/{options.id}")  # a run that is not there is told, not silence
    _print_logs(portal, options.id, {})
    return 0


def run_wait(portal: Portal, options: argparse.Namespace) -> int:
    """Wait for a run that was started before."""
    return follow_run(portal, options.id, logs=options.logs)


def run_action(verb: str) -> Command:
    """``cancel`` and ``rerun`` of a run by id."""

    def run(portal: Portal, options: argparse.Namespace) -> int:
        answer = portal.call("POST", f"runs/{options.id}/{verb}").json
        say(f"run {answer['id']}: {answer['state']}")
        return 0

    return run


def _print_logs(portal: Portal, run: str, offsets: dict[str, int]) -> None:
    attempts = sorted(portal.items("attempts", patient=True, run=run), key=lambda row: (row["node"], row["number"]))
    for attempt in attempts:
        pk = attempt["id"]
        while True:
            try:
                piece = portal.patiently(f"attempts/{pk}/log?offset={offsets.get(pk, 0)}")
            except Refused as error:
                if error.status == 404:
                    break
                raise
            if not piece.body:
                break
            offsets[pk] = int(piece.headers["next-offset"])
            sys.stdout.buffer.write(piece.body)
            sys.stdout.flush()


def _assignment(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Usage(f"{option} {text!r}: say NAME=VALUE")
    return name, value


def new_key() -> str:
    """A key for one call of the command: a retry inside the call cannot make a second object."""
    return os.urandom(16).hex()
