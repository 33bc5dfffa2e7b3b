"""A program by itself, as a container runs it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlencode

import pytest

from mlportal import secretfile
from mlportal.embedded import postgres
from mlportal.program import started
from tests.journeys.portal import ROOT, fetch

GIVEN = {
    "DATABASE_URL": "postgresql://portal@127.0.0.1:1/portal",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "PORTAL_ORIGIN": "https://portal.example.org",
    "PORTAL_APPS_DOMAIN": "apps.example.net",
}
KUBECONFIG = """
kind: Config
current-context: real
clusters: [{name: real, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: real, context: {cluster: real, user: me}}]
"""


def command(*words: str, environ: dict[str, str], log: IO[str] | None = None) -> subprocess.Popen[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-m", "mlportal", *words],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", **environ},
        stdout=log or subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    secretfile.ensure(tmp_path / "portal.json")
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return {
        **GIVEN,
        "PORTAL_HOME": str(tmp_path / "home"),
        "PORTAL_SECRET_FILE": str(tmp_path / "portal.json"),
        "PORTAL_CLUSTER": str(tmp_path / "kubeconfig"),
    }


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL", "PORTAL_CLUSTER", "PORTAL_ORIGIN", "PORTAL_SECRET_FILE"])
def test_what_is_not_given_is_named_and_nothing_is_made(given: dict[str, str], name: str, tmp_path: Path) -> None:
    if name == "PORTAL_CLUSTER":
        del given["PORTAL_APPS_DOMAIN"]  # refused first: the embedded cluster could not serve it
    if name == "PORTAL_SECRET_FILE":
        given[name] = str(tmp_path / "elsewhere.json")
    else:
        del given[name]
    program = command("worker", environ=given)
    text = program.communicate(timeout=90)[0]
    assert program.returncode == os.EX_USAGE, text
    assert text.startswith(f"mlportal: {name} is not set") and "\n" not in text.strip()
    assert not (tmp_path / "elsewhere.json").exists() and not (tmp_path / "home").exists()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """A server of its own: the session's holds a database that is migrated already."""
    run = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    postgres.initialise(data=run / "pg", fsync=False)
    with started(postgres.program(data=run / "pg", run=run, fsync=False), log=run / "log"):
        yield f"postgresql://mlportal@/postgres?host={run}&port=5432"
    subprocess.run(["rm", "-r", str(run)], check=True)


@pytest.mark.slow
def test_one_waits_until_the_other_has_migrated_and_then_the_pages_are_served(
    given: dict[str, str], database: str, redis_url: str, tmp_path: Path
) -> None:
    environ = {**given, "DATABASE_URL": database, "REDIS_URL": redis_url, "PORTAL_ADMIN_PASSWORD": "a long password"}
    waiting = command("wait", environ=environ)
    assert waiting.stdout is not None
    assert "migrations to come" in waiting.stdout.readline()
    jobs = [command("migrate", environ=environ) for _ in range(2)]
    said = [job.communicate(timeout=180)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    assert sum("made the administrator admin" in text for text in said) == 1
    assert "a long password" not in "".join(said)
    assert waiting.wait(timeout=90) == 0
    waiting.stdout.close()

    # What the image brings.
    collect = [sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity", "0"]
    subprocess.run(collect, cwd=ROOT, env={**os.environ, **environ}, check=True, timeout=180)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path / "web.log").open("w")
    web = command("web", "--listen", f"127.0.0.1:{port}", environ=environ, log=log)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                assert fetch(f"http://127.0.0.1:{port}/readyz", headers={"Host": "localhost"}).status == 200
                break
            except OSError:
                assert web.poll() is None and time.monotonic() < end, (tmp_path / "web.log").read_text()[-3000:]
                time.sleep(0.1)
        outside = {"Host": "portal.example.org", "X-Forwarded-Proto": "https"}
        page = fetch(f"http://127.0.0.1:{port}/sign-in", headers=outside)
        assert page.status == 200
        assert re.search(r"mlportal-csrf=[^;]+;.*Secure", str(page.headers)), "cookies go over HTTPS alone"
        cookie = {name.title(): value for name, value in page.headers.items()}["Set-Cookie"].split(";", 1)[0]
        token = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', page.body)
        assert token is not None
        form = urlencode({"username": "admin", "password": "a long password", "csrfmiddlewaretoken": token[1].decode()})
        sent = {**outside, "Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
        for origin, status in (("https://portal.example.org", 302), ("https://other.example.org", 403)):
            headers = {**sent, "Origin": origin}
            answer = fetch(f"http://127.0.0.1:{port}/sign-in", method="POST", headers=headers, body=form.encode())
            assert answer.status == status, "behind HTTPS, forms come from the portal's own address"
        assert fetch(f"http://127.0.0.1:{port}/sign-in", headers={"Host": "other.example.org"}).status == 400
        assert json.loads(fetch(f"http://127.0.0.1:{port}/livez", headers=outside).body) == {"status": "ok"}
    finally:
        web.terminate()
        web.wait(timeout=60)
        log.close()
