"""All of it as an ordinary user: the whole portal, an instance that answers, and an end that leaves nothing."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from localkube.node.images import Images
from tests.journeys.portal import PASSWORD, ROOT, Portal, wait_until
from tests.mlportal import another_user
from tests.mlportal.portal import Browser

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("up")]


@pytest.fixture
def folder():
    """A folder that the user can reach and owns parts of."""
    made = Path(tempfile.mkdtemp(prefix="mlp-ord-", dir="/tmp"))
    made.chmod(0o755)
    for name in ("home", "user"):
        (made / name).mkdir()
        if os.geteuid() == 0:
            os.chown(made / name, another_user.NOBODY, another_user.NOBODY)
    yield made
    shutil.rmtree(made)


def images():
    """The cache with JupyterLab's image in it, built once per machine by whoever runs tests. Packages are no secret."""
    cache = Path.home() / ".cache" / "mlportal" / "images"
    image = asyncio.run(Images(ROOT / "docker" / "images.toml", cache).pull("mlportal/jupyter:1", print))
    if os.geteuid() == 0:
        cache.chmod(0o755)
        for place in {image.venv.parent, image.library_cache.parent} & set(cache.iterdir()):
            subprocess.run(["chmod", "-R", "a+rX", place], check=True)
    return cache


def test_an_ordinary_user_runs_it_launches_an_instance_and_leaves_nothing(folder):
    prefix, cache = (), images()
    if os.geteuid() == 0:
        prefix = another_user.command(folder / "staging", cache)
        cache = folder / "staging" / "images"
    readable = subprocess.run([*prefix, "test", "-r", ROOT / "manage.py"], check=False)
    assert readable.returncode == 0, f"others cannot read {ROOT}: run the tests from a checkout that they can"
    environ = {
        "HOME": str(folder / "user"),
        "LOCALKUBE_IMAGE_CACHE": str(cache),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_RUNTIME_DIR": "",
    }
    portal = Portal(home=folder / "home" / "data", env=environ, prefix=prefix)
    portal.log.touch()
    portal.start()
    try:
        made = portal.api(
            "POST", "instances", {"name": "mine", "image": "jupyter", "size": "small", "queue": "default"}
        )
        assert made.status == 201, made.body
        pk, host = made.json["id"], urlsplit(made.json["url"]).hostname
        key = portal.api("GET", f"instances/{pk}/key").json["key"]
        wait_until(
            "lab that answers",
            lambda: portal.at_instance(host, "/api/status", key=key).status == 200,
            seconds=120,
        )
        if os.geteuid() == 0:
            assert portal.process.pid in another_user.processes()
            browser = Browser(portal.port)
            browser.sign_in("admin", PASSWORD)
            assert "soft limit: memory is measured" in browser.open(f"/instances/{pk}")[1]
        assert portal.stop() == 0, portal.log.read_text()
    finally:
        if portal.process.poll() is None:
            portal.stop()
    left = [path for path in folder.rglob("*") if path.is_socket()]
    assert left == []
    assert str(folder) not in Path("/proc/self/mounts").read_text()
    if os.geteuid() == 0:
        wait_until("end of every process", lambda: another_user.processes() == [], seconds=30)
