"""SSH as far as an instance's Secret goes: one host key for its life (F49), its owner's public keys as they are."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.core.errors import Conflict
from apps.core.models import AuditEntry
from apps.instances import inside, services, ssh
from apps.instances.models import Instance
from apps.instances.spec import objects_of
from apps.tenants import sshkeys
from kubekit.errors import Unreachable
from mlportal import sshhost
from tests.instances.conftest import World
from tests.tenants import make
from tests.tenants.test_ssh_keys import line

pytestmark = pytest.mark.django_db


def secret_of(world: World) -> dict[str, str]:
    data = world.cluster.one("Secret")["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def stopped(world: World, instance: Instance) -> None:
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)


def test_f49_the_host_key_is_the_same_at_every_launch_and_another_for_every_instance(world: World) -> None:
    instance = world.running()
    first = secret_of(world)
    stopped(world, instance)
    services.start(actor=world.actor, instance=instance)
    world.reconcile(instance)
    again = secret_of(world)
    assert again["ssh-host-key"] == first["ssh-host-key"]
    assert again["key"] != first["key"]
    assert instance.ssh_host_public.startswith("ssh-ed25519 ")
    other = world.create()
    assert other.ssh_host_public != instance.ssh_host_public


def test_an_instance_from_before_gets_a_host_key_at_its_next_start(world: World) -> None:
    instance = world.running()
    stopped(world, instance)
    Instance.objects.as_system().filter(pk=instance.pk).update(ssh_host_key="", ssh_host_public="")
    services.start(actor=world.actor, instance=instance)
    instance.refresh_from_db()
    assert "PRIVATE KEY" in instance.ssh_host_key.reveal() and instance.ssh_host_public


def test_the_owners_keys_are_in_the_secret_and_a_change_is_written_while_it_runs(world: World) -> None:
    mine = sshkeys.add(actor=world.actor, key=line())
    sshkeys.add(actor=make.actor(world.colleague), key=line())
    instance = world.running()
    assert secret_of(world)["authorized_keys"] == f"{mine.public}\n"
    pod = world.cluster.one("Pod")
    uid = pod["metadata"]["uid"]
    second = sshkeys.add(actor=world.actor, key=line())
    world.cluster.calls.clear()
    world.reconcile(instance)
    assert secret_of(world)["authorized_keys"] == f"{mine.public}\n{second.public}\n"
    pod = world.cluster.one("Pod")
    assert pod["metadata"]["annotations"]["mlportal.io/refreshed"] == str(instance.generation)
    assert (pod["metadata"]["uid"], instance.launch, instance.state) == (uid, 1, "running")
    sshkeys.delete(actor=world.actor, key=mine)
    world.reconcile(instance)
    assert secret_of(world)["authorized_keys"] == f"{second.public}\n"


def test_only_what_the_person_has_running_is_written_anew(world: World) -> None:
    resting = world.running()
    stopped(world, resting)
    theirs = world.create(actor=make.actor(world.colleague))
    before = {row.pk: row.generation for row in (resting, theirs)}
    sshkeys.add(actor=world.actor, key=line())
    for row in (resting, theirs):
        row.refresh_from_db()
        assert row.generation == before[row.pk]


def test_the_private_host_key_is_in_no_page_and_no_audit_entry(world: World) -> None:
    instance = world.running()
    secret = instance.ssh_host_key.reveal().splitlines()[2]
    shown = repr([obj for obj in objects_of(instance) if obj["kind"] == "Secret"])
    assert "authorized_keys" in shown and secret not in shown
    assert secret not in repr(list(AuditEntry.objects.as_system().values()))


# --- the way there -----------------------------------------------------------------------------------------------


@pytest.fixture
def entrance(tmp_path: Path, settings: Any) -> str:
    """An entrance by SSH with a host key; its public half."""
    file = tmp_path / "ssh-host-key"
    sshhost.ensure(file)
    before = file.read_bytes()
    sshhost.ensure(file)
    assert file.read_bytes() == before and stat.S_IMODE(file.stat().st_mode) == 0o600
    settings.PORTAL_SSH_HOST, settings.PORTAL_SSH_PORT = "ssh.example.org", 2222
    settings.PORTAL_SSH_HOST_KEY_FILE = file
    return ssh.gateway_key()


def test_the_way_pins_both_host_keys_and_names_the_instance_by_its_id(world: World, entrance: str) -> None:
    instance = world.running(name="work-1")
    way = ssh.require_way(world.actor, instance)
    host = f"i-{instance.pk.hex}"
    assert way.known_hosts == [f"[ssh.example.org]:2222 {entrance}", f"{host} {instance.ssh_host_public}"]
    assert way.command == f"ssh -J {world.owner.username}@ssh.example.org:2222 user@{host}"
    assert f"Host work-1\n  HostName {host}\n  User user\n  ProxyJump mlportal-ssh.example.org\n" in way.config
    assert way.config.count("StrictHostKeyChecking yes") == 2
    assert way.fingerprint.startswith("SHA256:") and way.fingerprint != way.gateway_fingerprint


def test_a_name_that_ssh_could_not_take_never_gets_into_a_configuration(world: World, entrance: str) -> None:
    instance = world.running(name="我的 实例")
    way = ssh.require_way(world.actor, instance)
    assert way.alias == way.address and "实例" not in way.config


def test_the_page_shows_the_owner_the_way_and_rest_gives_it_to_nobody_else(world: World, entrance: str) -> None:
    instance = world.running(name="work-1")
    page, way = f"/instances/{instance.pk}", ssh.require_way(world.actor, instance)
    browser = Client()
    browser.force_login(world.owner)
    shown = browser.get(page).content.decode()
    for text in ("portalctl ssh work-1", way.command, way.fingerprint, way.gateway_fingerprint):
        assert text in shown
    mine = browser.get(f"/api/v1/instances/{instance.pk}/ssh")
    assert mine.json()["known_hosts"] == way.known_hosts
    for person, status in ((world.colleague, 403), (world.stranger, 404)):
        browser.force_login(person)
        assert browser.get(f"/api/v1/instances/{instance.pk}/ssh").status_code == status
        assert browser.get(f"{page}/ssh").status_code == 404
        assert way.command not in browser.get(page).content.decode()


def test_without_an_entrance_or_a_host_key_it_is_said_what_to_do(world: World, entrance: str, settings: Any) -> None:
    instance = world.running()
    instance.ssh_host_public = ""
    with pytest.raises(Conflict) as refusal:
        ssh.require_way(world.actor, instance)
    assert refusal.value.code == "no_ssh_yet"
    settings.PORTAL_SSH_PORT = 0
    with pytest.raises(Conflict) as refusal:
        ssh.require_way(world.actor, instance)
    assert refusal.value.code == "no_ssh"
    browser = Client()
    browser.force_login(world.owner)
    assert "This portal has no entrance by SSH" in browser.get(f"/instances/{instance.pk}").content.decode()


@pytest.mark.parametrize(
    ("answer", "said"),
    [((0, ""), ""), ((0, "this image has no sshd"), "no sshd"), (Unreachable("away"), "could not be asked")],
)
def test_the_page_says_when_sshd_does_not_run_and_why(
    world: World, monkeypatch: pytest.MonkeyPatch, answer: Any, said: str
) -> None:
    def ask(*_: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(inside, "ask", ask)
    browser = Client()
    browser.force_login(world.owner)
    shown = browser.get(f"/instances/{world.running().pk}/ssh").content.decode()
    assert said in shown if said else not shown.strip()
