"""What an image that was not made for the portal turned out to have: asked once, and said on the page."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from apps.catalog.models import Image, Purpose
from apps.clusters.models import Cluster
from apps.core.errors import Conflict
from apps.instances import buttons, editor, entering, imaging, inside, services
from apps.instances.models import Instance
from apps.instances.spec import spec_of
from kubekit import tools
from kubekit.errors import Unreachable
from tests.instances.conftest import World
from tests.tenants import make


class Inside:
    """The running program, and how often it was asked."""

    def __init__(self) -> None:
        self.says = "none no-python\nshell /bin/sh\n"
        self.away = False
        self.asked: list[tuple[str, ...]] = []

    def ask(self, _instance: Instance, command: Any) -> tuple[int, str]:
        self.asked.append(tuple(command))
        if self.away:
            raise Unreachable("away")
        return 0, self.says


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Inside:
    found = Inside()
    monkeypatch.setattr(inside, "ask", found.ask)
    return found


@pytest.fixture
def bare(world: World) -> Image:
    return Image.objects.create(name="debian", reference="debian", purpose=Purpose.DEV, prepared=False)


@pytest.fixture
def client(world: World) -> Client:
    cache.clear()
    found = Client()
    found.force_login(world.owner)
    return found


def verbs(world: World, instance: Instance) -> set[str]:
    return {action.verb for action in buttons.of(world.actor, instance)}


def test_it_is_asked_once_when_it_has_come_up(world: World, bare: Image, program: Inside) -> None:
    instance = world.running(image="debian")
    if not instance.entrances:
        instance = world.reconcile(instance)
    assert instance.state == "running"
    assert instance.entrances == {"why": "no-python", "shell": "/bin/sh"}
    world.reconcile(instance)
    assert program.asked == [tools.READ]


def test_an_image_made_for_the_portal_is_never_asked(world: World, program: Inside) -> None:
    instance = world.running()
    world.reconcile(instance)
    assert program.asked == []
    assert {"enter", "enter-editor"} <= verbs(world, instance)


def test_it_is_asked_again_while_it_cannot_be_asked_and_runs_meanwhile(
    world: World, bare: Image, program: Inside
) -> None:
    program.away = True
    instance = world.running(image="debian")
    instance = world.reconcile(instance)
    assert (instance.state, instance.entrances) == ("running", {})
    assert instance.due_at is not None
    assert "enter" not in verbs(world, instance)
    program.away = False
    instance = world.reconcile(instance)
    assert instance.entrances["why"] == "no-python"


def test_nonsense_from_inside_is_no_reason_to_ask_for_ever(world: World, bare: Image, program: Inside) -> None:
    program.says = "<script>"
    instance = world.running(image="debian")
    instance = world.reconcile(instance)
    assert instance.entrances == {"why": "unknown"}
    asked = len(program.asked)
    world.reconcile(instance)
    assert len(program.asked) == asked


def test_the_page_says_which_entrances_there_are_and_the_buttons_too(
    world: World, bare: Image, program: Inside, client: Client
) -> None:
    instance = world.reconcile(world.running(image="debian"))
    page = client.get(instance.get_absolute_url()).content.decode()
    assert "The image has no Python, so there is no JupyterLab and no VS Code in the browser." in page
    assert "SSH is the entrance" in page
    assert 'data-verb="enter-lab"' not in page
    assert not {"enter", "enter-editor"} & verbs(world, instance)
    assert "there is none here" in client.get(f"/instances/{instance.pk}/editor").content.decode()
    item = client.get(f"/api/v1/instances/{instance.pk}").json()["entrances"]
    assert (item["jupyterlab"], item["why"]) == (False, "no-python")


def test_nothing_is_opened_that_is_not_there(world: World, bare: Image, program: Inside) -> None:
    instance = world.reconcile(world.running(image="debian"))
    with pytest.raises(Conflict) as refused:
        entering.ticket(actor=world.actor, instance=instance)
    assert refused.value.code == "no_jupyterlab"
    assert editor.look(instance).version == ""
    assert program.asked == [tools.READ]  # the editor needs no second question


@pytest.mark.parametrize(
    ("says", "part"),
    [
        ("none old-python 3.8", "(3.8) is older than 3.9"),
        ("none no-jupyterlab 3.11", "pip install --user jupyterlab"),
        ("none old-jupyter 2.7", "(2.7) is older than 2.13"),
        ("none broken ImportError: <b>", "cannot be started: ImportError: &lt;b&gt;"),
        ("nonsense", "could not be read"),
    ],
)
def test_each_reason_is_a_sentence(
    world: World, bare: Image, program: Inside, client: Client, says: str, part: str
) -> None:
    program.says = says
    instance = world.reconcile(world.running(image="debian"))
    assert part in client.get(instance.get_absolute_url()).content.decode()


def test_an_image_with_jupyterlab_has_all_entrances_and_the_next_launch_is_asked_anew(
    world: World, bare: Image, program: Inside, client: Client
) -> None:
    program.says = "jupyterlab 4.6.6\nshell /bin/bash\npython /opt/venv/bin/python\n"
    instance = world.reconcile(world.running(image="debian"))
    assert {"enter", "enter-editor"} <= verbs(world, instance)
    assert 'data-verb="enter-lab"' in client.get(instance.get_absolute_url()).content.decode()
    assert entering.ticket(actor=world.actor, instance=instance).ticket
    services.restart(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    assert world.reconcile(instance).entrances == {}


# --- how its pod is written --------------------------------------------------------------------------------------


def test_the_tools_are_put_into_what_was_not_made_for_the_portal_alone(world: World, bare: Image) -> None:
    assert spec_of(world.create()).tools_image is None
    assert spec_of(world.create(image="debian")).tools_image == "mlportal/tools:1"
    assert imaging.shell(world.image) == "/bin/sh"
    assert imaging.shell(bare) == "/opt/mlportal/bin/sh"
    assert imaging.script(world.image, "cat x") == ("/bin/sh", "-c", "cat x")
    own = ("/opt/mlportal/bin/sh", "-c", 'PATH="$PATH:/opt/mlportal/busybox"; cat x')
    assert imaging.script(bare, "cat x") == own


def test_an_image_for_one_processor_goes_to_nodes_of_that_kind(world: World, bare: Image) -> None:
    Image.objects.as_system().filter(pk=bare.pk).update(architecture="arm64")
    assert spec_of(world.create(image="debian")).placement.node_selector == {"kubernetes.io/arch": "arm64"}
    assert spec_of(world.create()).placement.node_selector == {}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("version", "policy"),
    [
        ("v1.36.3", "IfNotPresent"),
        ("1.35", "IfNotPresent"),
        ("v1.34.1", "Always"),
        ("", "Always"),
        ("v2.0", "IfNotPresent"),
    ],
)
def test_an_image_that_somebody_named_is_given_to_whom_the_registry_gives_it(version: str, policy: str) -> None:
    """Failure F50: a node that has another team's private image gives it to everybody who names it."""
    own, cluster = Image(name="own", team=make.team()), Cluster(version=version)
    assert imaging.pull_policy(own, cluster) == policy
    assert imaging.pull_policy(Image(name="catalogue"), cluster) == "IfNotPresent"
