"""The program itself: start, files, refusals, and that SIGKILL loses nothing that was answered."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localkube.config import Config, ConfigError
from tests.localkube.client import Client
from tests.localkube.manifests import config_map

ROOT = Path(__file__).parents[2]
CONFIGS = "/api/v1/namespaces/default/configmaps"


def command(home, *more):
    listen = [] if "--listen" in more else ["--listen", "127.0.0.1:0"]
    return [sys.executable, "-m", "localkube", "serve", "--home", str(home), "--no-node", *listen, *more]


def environment():
    return os.environ | {"PYTHONPATH": str(ROOT / "platform")}


@pytest.fixture
def start(tmp_path):
    """Starts the program on one home folder and waits until it is ready; every process is ended afterwards."""
    processes = []

    def run():
        (tmp_path / "ready").unlink(missing_ok=True)
        process = subprocess.Popen(command(tmp_path), env=environment(), stderr=subprocess.PIPE)
        processes.append(process)
        deadline = time.monotonic() + 90
        while not (tmp_path / "ready").exists():
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return process, Client(tmp_path, (tmp_path / "ready").read_text().strip().removeprefix("https://"))

    yield run
    for process in processes:
        process.kill()
        process.wait()
        process.stderr.close()


def test_sigkill_loses_nothing_that_was_answered(start):
    process, api = start()
    for number in range(50):
        assert api.post(CONFIGS, config_map(f"c{number}", a=str(number))).code == 201
    before = api.get(CONFIGS).body
    process.kill()
    process.wait()
    _, api = start()
    after = api.get(CONFIGS).body
    assert after["items"] == before["items"]
    assert int(api.post(CONFIGS, config_map("new")).body["metadata"]["resourceVersion"]) > int(
        before["metadata"]["resourceVersion"]
    )


def test_sigterm_ends_it_cleanly_even_with_an_open_watch(start, tmp_path):
    process, api = start()
    watch = subprocess.Popen(
        [sys.executable, "-c", _WATCH.format(address=api.address, ca=tmp_path / "ca.crt", token=api.token)],
        stdout=subprocess.PIPE,
    )
    assert watch.stdout.readline() == b"open\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0
    watch.wait(90)
    watch.stdout.close()
    assert not (tmp_path / "ready").exists()


_WATCH = """
import http.client, ssl
connection = http.client.HTTPSConnection("{address}", context=ssl.create_default_context(cafile="{ca}"))
connection.request("GET", "/api/v1/pods?watch=1", headers={{"Authorization": "Bearer {token}"}})
response = connection.getresponse()
print("open", flush=True)
response.read()
"""


def test_secrets_are_for_their_owner_alone(start, tmp_path):
    start()
    for name in ("token", "kubeconfig", "server.pem", "store.db"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_a_second_one_on_the_same_folder_says_so_and_ends(start, tmp_path):
    start()
    second = subprocess.run(
        command(tmp_path), env=environment(), capture_output=True, text=True, timeout=90, check=False
    )
    assert second.returncode == 1
    assert "another localkube may hold it" in second.stderr


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:6443", "192.168.1.1:6443", "localhost:6443", "127.0.0.1", "127.0.0.1:99999"]
)
def test_only_loopback_addresses_are_accepted(tmp_path, listen):
    with pytest.raises(ConfigError, match="--listen"):
        Config(home=tmp_path, listen=listen).check()


def test_the_command_refuses_another_address_in_one_sentence(tmp_path):
    line = command(tmp_path, "--listen", "0.0.0.0:6443")
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stderr.startswith("localkube: --listen 0.0.0.0:6443")) == (2, True)
