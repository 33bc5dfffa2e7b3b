"""`python -m mlportal up` as a person starts it: real processes, one data folder, one terminal."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

from mlportal.paths import Home
from mlportal.processes import MARK, all_pids, started_ticks

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = {"postgres", "redis", "caddy", "localkube", "web", "worker", "control"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Browser:
    """Enough of one to sign in."""

    def __init__(self, port):
        self.origin = f"http://127.0.0.1:{port}"
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def open(self, path, data=None):
        request = urllib.request.Request(self.origin + path, data=data, headers={"Origin": self.origin})
        with self.opener.open(request, timeout=60) as answer:
            return answer.url, answer.read().decode()

    def sign_in(self, name, password):
        _, page = self.open("/sign-in")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page).group(1)
        form = {"csrfmiddlewaretoken": token, "username": name, "password": password}
        return self.open("/sign-in", urllib.parse.urlencode(form).encode())


class Portal:
    """One data folder; `start` and `stop` as often as a test likes."""

    def __init__(self, home):
        self.home = home
        self.port = free_port()
        self.process = None
        self.terminal = home.parent / "terminal"

    def run(self, **changes):
        """Start without waiting."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PORTAL_")}
        for name in ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"):
            environ.pop(name, None)
        environ |= {"PORTAL_HOME": str(self.home), "PORTAL_HTTP_PORT": str(self.port), "PORTAL_SSH_PORT": "0"}
        environ |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", **changes}
        return subprocess.Popen(
            [sys.executable, "-m", "mlportal", "up"],
            env=environ,
            cwd=ROOT,
            stdout=self.terminal.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def refused(self, **changes):
        """Start, expecting an end; gives the exit status and what was said."""
        process = self.run(**changes)
        return process.wait(60), self.said()

    def start(self, **changes):
        self.process = self.run(**changes)
        self.wait(lambda: "Ctrl-C stops everything" in self.said(), 90)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.said()

    def end(self):
        """Whatever became of it, for a test's end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)

    def wait(self, what, seconds=30):
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)
        return found

    def said(self):
        return self.terminal.read_text()

    def noted(self):
        return {entry["name"]: entry["pid"] for entry in json.loads(self.run_folder("processes.json").read_text())}

    def run_folder(self, name):
        return Home(root=self.home).run / name

    def status(self, path="/livez"):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def leftovers(self):
        """Processes that work for this folder, sockets in it, mounts below it."""
        found = [pid for pid in all_pids() if started_ticks(pid) is not None and self._works_here(pid)]
        sockets = [path for path in self.home.rglob("*") if path.is_socket()]
        mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.home) in line]
        return found, sockets, mounts

    def _works_here(self, pid):
        try:
            about = Path(f"/proc/{pid}/cmdline").read_bytes() + b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{MARK}={self.home}\0".encode() in about or f"{self.home}/".encode() in about.split(b"\0PATH=")[0]
