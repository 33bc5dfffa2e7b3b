"""B11: the gateway beside configurable-http-proxy and nginx, each on one core with the same 5,000 routes.

A proxy has a core of its own; the load (wrk) and the server behind share the other. The gateway checks the session of
each request; nginx asks for it by `auth_request` and keeps the answer for a minute; configurable-http-proxy has no
check.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.benchmarks.b1_cron_tick import ROOT
from tests.benchmarks.b12_filled import CHP, answers, node_package
from tests.benchmarks.page import write
from tests.journeys.portal import fetch, free_port

ROUTES, IN_USE, CONNECTIONS, SOCKETS, CHANGES = 5_000, 64, 64, 200, 1_000
ROUNDS, SECONDS, NEW = 3, 6, 30
DOMAIN = "a.test"
LABELS = {"ours": "this project", "chp": "configurable-http-proxy", "nginx": "nginx"}
WRK = """
local hosts, cookies, n = {{}}, {{}}, 0
for line in io.lines("{list}") do
  local host, cookie = line:match("(%S+) (%S*)")
  hosts[#hosts + 1], cookies[#cookies + 1] = host, cookie
end
request = function()
  n = n % #hosts + 1
  wrk.headers["Host"], wrk.headers["Cookie"] = hosts[n], "__Host-mlportal-port=" .. cookies[n]
  return wrk.format("GET", "/api/status")
end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("FOUND {{\\"rate\\": %f, \\"p50\\": %f, \\"p99\\": %f, \\"wrong\\": %d, \\"count\\": %d}}\\n",
    summary.requests / summary.duration * 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    e.connect + e.read + e.write + e.status + e.timeout, summary.requests))
end
"""
ECHO = r"""
import asyncio, sys
async def serve(reader, writer):
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while piece := await reader.read(100):
            writer.write(piece)
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=500) as server:
        await server.serve_forever()
asyncio.run(main())
"""
BEHIND = """
daemon off; master_process off; pid {folder}/behind.pid; error_log {folder}/behind.log crit;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; {paths}
  server {{ listen 127.0.0.1:{port} backlog=1024;
    location = /check {{ return 204; }} location / {{ return 200 "{body}"; }} }} }}
"""
FRONT = """
daemon off; worker_processes 1; pid {folder}/front.pid; error_log {folder}/front.log crit;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; {paths}
  proxy_cache_path {folder}/checks keys_zone=checks:4m; map_hash_max_size 20000; map_hash_bucket_size 256;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  {upstreams}
  map $host $to {{ {table} }}
  server {{ listen 127.0.0.1:{port} backlog=1024;
    location / {{ auth_request /_check; proxy_pass http://$to; proxy_http_version 1.1; proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade; }}
    location = /_check {{ internal; proxy_pass http://127.0.0.1:{behind}/check; proxy_pass_request_body off;
      proxy_cache checks; proxy_cache_key $host$http_cookie; proxy_cache_valid 204 60s; }} }} }}
"""
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"


@dataclass
class Place:
    """Everything that the sides share."""

    folder: Path
    tools: Path
    behind: int
    echo: int
    link: Any
    environ: dict[str, str]
    ids: list[str]
    cookies: dict[str, list[str]]
    told: int = 0

    def host(self, number: int, port: int) -> str:
        """What a browser at this instance's port asks for."""
        return f"p{port}--i-{self.ids[number]}.{DOMAIN}"


def main() -> None:
    """Run, print, and write the page."""
    from mlportal.embedded import postgres
    from mlportal.program import started

    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="mlportal-b11-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        postgres.initialise(data=folder / "pg", fsync=True)
        stack.enter_context(
            started(postgres.program(data=folder / "pg", run=folder, fsync=True), log=folder / "pg.log")
        )
        place = prepare(folder, stack)
        figures: dict[str, list[dict[str, float]]] = {name: [] for name in LABELS}
        changes: dict[str, Any] = {}
        for number in range(ROUNDS):
            for side in LABELS:
                with SIDES[side](place) as (port, pid):
                    found = loaded(place, side, port, pid)
                    if number:
                        figures[side].append(found)
                    if number == ROUNDS - 1:
                        changes[side] = asyncio.run(changed(place, side, port))
        asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    text = page(figures, changes, asked, load)
    print(text)
    write(text)


def prepare(folder: Path, stack: ExitStack) -> Place:
    """Rows, tools, and the servers behind."""
    import psycopg

    with psycopg.connect(host=str(folder), user="mlportal", dbname="postgres", autocommit=True) as link:
        link.execute("CREATE DATABASE bench")
    inherited = [name for name in os.environ if name.startswith(("PORTAL_", "DATABASE_", "REDIS_"))]
    environ = {
        **os.environ,
        **dict.fromkeys(inherited, ""),
        "PORTAL_HOME": str(folder / "home"),
        "DATABASE_URL": f"postgresql://mlportal@/bench?host={folder}&port=5432",
        "REDIS_URL": "memory://",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
        "DJANGO_SETTINGS_MODULE": "mlportal.settings",
    }
    behind, echo = free_port(), free_port()
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], env=environ, cwd=ROOT, check=True)
    fill = [sys.executable, "-m", "tests.benchmarks.sides.b11_ours", "fill", str(behind), str(echo)]
    made = subprocess.run(fill, env=environ, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    filled = json.loads(made.stdout.splitlines()[-1])
    place = Place(
        folder=folder, tools=debian_tools(), behind=behind, echo=echo, environ=environ, ids=filled["ids"],
        cookies=filled["cookies"], link=psycopg.connect(
            host=str(folder), user="mlportal", dbname="bench", autocommit=True
        ),
    )  # fmt: skip
    stack.callback(place.link.close)
    config = folder / "behind.conf"
    config.write_text(BEHIND.format(folder=folder, port=behind, paths=_paths(folder), body="ok" * 64), encoding="ascii")
    stack.enter_context(_running(place, [place.tools / "usr/sbin/nginx", "-p", folder, "-c", config], core=1))
    stack.enter_context(_running(place, [sys.executable, "-c", ECHO, str(echo)], core=1))
    _until("the server behind", answers(f"http://127.0.0.1:{behind}/"))
    listed = [f"{place.host(n, behind)} {place.cookies[str(behind)][n]}" for n in range(IN_USE)]
    (folder / "hosts").write_text("\n".join(listed), encoding="ascii")
    (folder / "load.lua").write_text(WRK.format(list=folder / "hosts"), encoding="ascii")
    return place


def debian_tools() -> Path:
    """nginx and wrk as Debian has them, unpacked once beside the other peers; nothing is installed."""
    home = ROOT / ".portal" / "b11"
    if not (home / "usr/bin/wrk").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        wanted = ["nginx", "wrk", "libluajit-5.1-2", "libluajit-5.1-common"]
        subprocess.run(["apt-get", "-q", "download", *wanted], cwd=home, check=True, capture_output=True)
        for package in home.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, home], check=True)
    return home


def _paths(folder: Path) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return " ".join(f"{kind}_temp_path {folder}/temp-{kind};" for kind in kinds)


@contextmanager
def _running(place: Place, argv: list[Any], *, core: int) -> Iterator[subprocess.Popen[bytes]]:
    words = ["taskset", "-c", str(core), *map(str, argv)]
    with (place.folder / "log").open("ab") as log:
        process = subprocess.Popen(words, env=place.environ, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # node's wheel is a program that starts another
        process.wait(60)


def _until(what: str, probe: Callable[[], Any], seconds: float = 120) -> float:
    began = time.monotonic()
    while not probe():
        if time.monotonic() - began > seconds:
            raise RuntimeError(f"no {what} in {seconds} s")
        time.sleep(0.002)
    return time.monotonic() - began


# --- sides -------------------------------------------------------------------------------------------------------


@contextmanager
def ours(place: Place) -> Iterator[tuple[int, int]]:
    """The gateway's process."""
    port, asked = free_port(), place.folder / "asked.json"
    argv = [sys.executable, "-m", "tests.benchmarks.sides.b11_ours", "serve", str(port), asked]
    with _running(place, argv, core=0) as process:
        _until("gateway", lambda: status(place, port, 0) == 200)
        yield port, process.pid


@contextmanager
def chp(place: Place) -> Iterator[tuple[int, int]]:
    """configurable-http-proxy, told of its routes through its interface."""
    port, told = free_port(), free_port()
    command = node_package(ROOT / ".portal" / "stacks")
    argv = [*command, "--ip", "127.0.0.1", "--port", port, "--api-ip", "127.0.0.1", "--api-port", told]
    environ = place.environ
    environ["CONFIGPROXY_AUTH_TOKEN"] = "bench"
    with _running(place, [*argv, "--host-routing", "--log-level", "error"], core=0) as process:
        place.told = told
        _until("configurable-http-proxy", lambda: _listens(told))
        asyncio.run(_tell_all(place, told))
        yield port, process.pid


@contextmanager
def nginx(place: Place) -> Iterator[tuple[int, int]]:
    """nginx with a table of hosts, a pool of connections for each."""
    port = free_port()
    nginx_config(place, port, ROUTES)
    binary = place.tools / "usr/sbin/nginx"
    argv = [binary, "-p", place.folder, "-c", place.folder / "front.conf"]
    with _running(place, argv, core=0) as process:
        _until("nginx", lambda: status(place, port, 0) == 200)
        yield port, process.pid


SIDES = {"ours": ours, "chp": chp, "nginx": nginx}


def nginx_config(place: Place, port: int, routes: int) -> None:
    """The first so many routes, to the server behind; and to the echo for those who use it."""
    upstreams, table = [], []
    for number in range(routes):
        upstreams.append(f"upstream u{number} {{ server 127.0.0.1:{place.behind}; keepalive 4; }}")
        table.append(f"{place.host(number, place.behind)} u{number};")
    (place.folder / "front.conf").write_text(
        FRONT.format(
            folder=place.folder, port=port, behind=place.behind, paths=_paths(place.folder),
            upstreams="\n".join(upstreams), table="\n".join(table),
        ),
        encoding="ascii",
    )  # fmt: skip


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def _tell_all(place: Place, told: int) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": "token bench"}) as session:
        for number in range(ROUTES):
            await _tell(session, place, told, number, place.behind)
        for number in range(SOCKETS):
            await _tell(session, place, told, number, place.echo)


async def _tell(session: Any, place: Place, told: int, number: int, port: int, *, gone: bool = False) -> None:
    address = f"http://127.0.0.1:{told}/api/routes/{place.host(number, port)}/"
    if gone:
        await (await session.delete(address)).read()
    else:
        await (await session.post(address, json={"target": f"http://127.0.0.1:{port}"})).read()


# --- what is measured --------------------------------------------------------------------------------------------


def status(place: Place, port: int, number: int) -> int:
    """What the first request to a route gets; 0 for nothing."""
    cookie = f"__Host-mlportal-port={place.cookies[str(place.behind)][number]}"
    try:
        headers = {"Host": place.host(number, place.behind), "Cookie": cookie}
        return fetch(f"http://127.0.0.1:{port}/", headers=headers).status
    except OSError:
        return 0


def loaded(place: Place, side: str, port: int, pid: int) -> dict[str, float]:
    """Requests a second and how long they take, with 64 connections to 64 of the routes."""
    before = _cpu_s(pid)
    argv = ["taskset", "-c", "1", place.tools / "usr/bin/wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}"]
    argv += ["-s", place.folder / "load.lua", f"http://127.0.0.1:{port}"]
    environ = {**os.environ, "LD_LIBRARY_PATH": str(place.tools / "usr/lib/x86_64-linux-gnu")}
    text = subprocess.run(argv, env=environ, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(text.split("FOUND ")[1].splitlines()[0])
    found["cpu_us"] = 1e6 * (_cpu_s(pid) - before) / found["count"]
    print(side, found, flush=True)
    return found


def _cpu_s(pid: int) -> float:
    total = 0
    for each in (pid, *_children(pid)):
        parts = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += int(parts[11]) + int(parts[12])
    return total / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


async def changed(place: Place, side: str, port: int) -> dict[str, Any]:
    """Web sockets that are cut while routes come and go, and the time until a new route answers."""
    if side == "nginx":
        return {}  # it reads all of its routes anew for one: that is what the other two are for
    sockets = [await _socket(place, port, number) for number in range(SOCKETS)]
    taken = []
    async with aiohttp.ClientSession(headers={"Authorization": "token bench"}) as session:
        for number in range(CHANGES // 2):
            other = SOCKETS + number % 150
            sampled = number < NEW
            await _route(session, place, side, other, gone=True)
            if sampled:
                await asyncio.to_thread(_until, "end of a route", lambda other=other: status(place, port, other) != 200)
            await _route(session, place, side, other, gone=False)
            if sampled:
                waited = await asyncio.to_thread(
                    _until, "new route", lambda other=other: status(place, port, other) == 200
                )
                taken.append(1000 * waited)
    broken = 0
    for reader, writer in sockets:
        try:
            writer.write(b"still here")
            broken += await asyncio.wait_for(reader.readexactly(10), 30) != b"still here"
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            broken += 1
        writer.close()
    return {"broken": broken, "taken": sorted(taken)}


async def _route(session: Any, place: Place, side: str, number: int, *, gone: bool) -> None:
    if side == "chp":
        await _tell(session, place, place.told, number, place.behind, gone=gone)
        return
    state = "stopping" if gone else "running"
    await asyncio.to_thread(
        place.link.execute, "UPDATE instances_instance SET state = %s WHERE id = %s", [state, place.ids[number]]
    )


async def _socket(place: Place, port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    cookie = f"__Host-mlportal-port={place.cookies[str(place.echo)][number]}"
    head = f"GET / HTTP/1.1\r\nHost: {place.host(number, place.echo)}\r\nCookie: {cookie}\r\n{UPGRADE}\r\n"
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in answer, answer
    return reader, writer


def page(
    figures: dict[str, list[dict[str, float]]], changes: dict[str, Any], asked: dict[str, int], load: float
) -> str:
    """The section."""

    def middle(side: str, name: str) -> float:
        return statistics.median(one[name] for one in figures[side])

    def span(side: str, name: str, digits: int) -> str:
        values = [one[name] for one in figures[side]]
        low, mid, high = min(values), statistics.median(values), max(values)
        return f"{mid:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"

    rows = [
        f"| {LABELS[side]} | {span(side, 'rate', 0)} | {span(side, 'p50', 1)} | {span(side, 'p99', 1)} | "
        f"{span(side, 'cpu_us', 0)} | {sum(one['wrong'] for one in figures[side]):.0f} | "
        f"{middle(side, 'rate') / middle('chp', 'rate'):.1f} |"
        for side in LABELS
    ]
    sockets = "; ".join(
        f"{LABELS[side]} {found['broken']} of {SOCKETS}, a new route answers after "
        f"{statistics.median(found['taken']):.0f} ({found['taken'][0]:.0f} to {found['taken'][-1]:.0f}) ms"
        for side, found in changes.items()
        if found
    )
    minutes = SECONDS / 60
    return (
        "## B11 Gateway\n\n"
        "The way from the one wildcard route to an instance. One command: `make bench ARGS=b11`.\n\n"
        f"{ROUTES:,} routes, {CONNECTIONS} connections to {IN_USE} of them, each proxy on one core; {ROUNDS - 1} "
        f"rounds of {SECONDS} s after one to warm up, the sides in turn; median (lowest to highest).\n\n"
        "| side | requests a second | median ms | 99th percentile ms | CPU µs a request | wrong | times "
        "configurable-http-proxy |\n|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"Web sockets that were cut by {CHANGES:,} changes of routes: {sockets}. This project's route is the row "
        "in PostgreSQL (fsync on), from its commit on; the other's is told through its interface.\n\n"
        "Every request's session is checked: a signed cookie, against the table in memory. In the last round, a load "
        f"of {IN_USE} sessions for {minutes:.1f} minutes and the {CHANGES:,} changes, the gateway asked nobody whether "
        f"a session is good ({asked.get('admit', 0)} tickets) and read its table {asked.get('read', 0):,} times: once "
        "for the changes that it heard of together, and every 30 seconds. nginx asks once a minute for each session "
        "(`auth_request`, cached); configurable-http-proxy checks none.\n\n"
        f"{CHP.replace('@', ' ')}, nginx {_nginx_version()} and wrk of Debian; the server behind (nginx) and the load "
        f"share the other of {os.cpu_count()} cores. Load average at the start {load:.1f}.\n"
    )


def _nginx_version() -> str:
    said = subprocess.run([debian_tools() / "usr/sbin/nginx", "-v"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"nginx/([0-9.]+)", said)
    return found[1] if found else ""
