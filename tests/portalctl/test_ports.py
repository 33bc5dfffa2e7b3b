"""``portalctl instance ports`` and its neighbours against the real REST API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.instances.models import OpenPort, PortGuest
from portalctl.main import main
from tests.instances.conftest import World, world  # noqa: F401 - a fixture
from tests.tenants import make

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_port_is_opened_shared_and_closed_by_its_number(
    world: World,  # noqa: F811
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(exposure="gateway", embedded=False)
    world.owner.set_password("a-long-password")
    world.owner.save()
    friend = make.user()
    instance = world.running(name="mine")
    environ = {"HOME": str(tmp_path), "PORTAL_PASSWORD": "a-long-password"}
    monkeypatch.setenv("PORTAL_PASSWORD", "a-long-password")
    assert main(["login", live_server.url, "--user", world.owner.username], environ) == 0
    capsys.readouterr()

    assert main(["instance", "open-port", "mine", "8080", "--label", "TensorBoard"], environ) == 0
    assert f"p8080--i-{instance.pk.hex}." in capsys.readouterr().out
    assert main(["instance", "share-port", "mine", "8080", friend.username, "--days", "2"], environ) == 0
    guest = PortGuest.objects.as_system().get(port__instance=instance)
    assert guest.person_id == friend.pk
    assert main(["instance", "ports", "mine"], environ) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("8080", "TensorBoard", friend.username))

    assert main(["instance", "share-port", "mine", "8080", friend.username, "--end"], environ) == 0
    assert not PortGuest.objects.as_system().filter(pk=guest.pk)
    assert main(["instance", "close-port", "mine", "8080"], environ) == 0
    assert not OpenPort.objects.as_system().filter(instance=instance)
    capsys.readouterr()
    assert main(["instance", "open-port", "mine", "22"], environ) == 3
    assert capsys.readouterr().err.strip()


def test_a_key_is_replaced_from_the_command_line(
    world: World,  # noqa: F811
    live_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.owner.set_password("a-long-password")
    world.owner.save()
    instance = world.running(name="mine")
    environ = {"HOME": str(tmp_path), "PORTAL_PASSWORD": "a-long-password"}
    monkeypatch.setenv("PORTAL_PASSWORD", "a-long-password")
    assert main(["login", live_server.url, "--user", world.owner.username], environ) == 0
    assert main(["instance", "rotate-key", "mine"], environ) == 0
    instance.refresh_from_db()
    assert instance.next_key.reveal()
