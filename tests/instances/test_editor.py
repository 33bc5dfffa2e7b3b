"""VS Code in the browser: a button where the instance has it, and where not, why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from django.test import Client

from apps.core.models import AuditEntry
from apps.instances import inside
from apps.instances.models import Instance
from kubekit.errors import Unreachable
from tests.instances.conftest import World

Answer = Callable[[Instance, Sequence[str]], tuple[int, str]]


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """What the instance answers when it is asked."""

    def set_answer(answer: Answer) -> None:
        monkeypatch.setattr(inside, "ask", answer)

    return set_answer


def silent(instance: Instance, command: Sequence[str]) -> tuple[int, str]:
    raise Unreachable("nobody answers")


@pytest.fixture
def owner(world: World, client: Client) -> Client:
    client.force_login(world.owner)
    return client


def test_the_page_does_not_wait_for_the_instance_and_asks_it_afterwards(
    world: World, owner: Client, says: Callable[[Answer], None]
) -> None:
    says(lambda *_: pytest.fail("the page waited for the instance"))
    instance = world.running()
    page = owner.get(instance.get_absolute_url()).content.decode()
    assert f'hx-get="/instances/{instance.pk}/editor"' in page
    assert "Open in VS Code" in page


def test_where_it_is_the_button_posts_a_ticket_on_to_it(
    world: World, owner: Client, says: Callable[[Answer], None]
) -> None:
    says(lambda *_: (0, "4.139.1\n"))
    instance = world.running()
    button = owner.get(f"/instances/{instance.pk}/editor").content.decode()
    assert "4.139.1" in button
    assert "disabled" not in button
    page = owner.post(f"/instances/{instance.pk}/enter", {"to": "editor"}).content.decode()
    assert 'name="next" value="/code-server/"' in page
    assert f'action="http://i-{instance.pk.hex}.apps.localhost/portal/enter"' in page
    assert "Opening VS Code" in page
    assert AuditEntry.objects.as_system().filter(verb="instance.enter", object_id=instance.pk).count() == 1


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda *_: (1, ""), "was built without VS Code"),
        (lambda *_: (127, "sh: not found"), "was built without VS Code"),
        (silent, "cannot be asked"),
    ],
)
def test_where_it_is_not_the_button_says_why_and_no_ticket_is_given(
    world: World, owner: Client, says: Callable[[Answer], None], answer: Answer, sentence: str
) -> None:
    says(answer)
    instance = world.running()
    button = owner.get(f"/instances/{instance.pk}/editor").content.decode()
    assert "disabled" in button
    assert sentence in button
    refusal = owner.post(f"/instances/{instance.pk}/enter", {"to": "editor"})
    assert refusal.status_code == 409
    assert sentence in refusal.content.decode()
    assert not AuditEntry.objects.as_system().filter(verb="instance.enter", object_id=instance.pk).exists()


def test_on_the_embedded_cluster_it_names_the_command_that_installs_it(
    world: World, owner: Client, says: Callable[[Answer], None]
) -> None:
    says(lambda *_: (1, ""))
    world.queue.cluster.embedded = True
    world.queue.cluster.save(update_fields=["embedded"])
    instance = world.running()
    assert "make code-server" in owner.get(f"/instances/{instance.pk}/editor").content.decode()


def test_nobody_but_the_owner_has_a_button(world: World, client: Client, says: Callable[[Answer], None]) -> None:
    says(lambda *_: pytest.fail("asked for somebody else"))
    instance = world.running()
    for person in (world.colleague, world.stranger):
        client.force_login(person)
        assert client.get(f"/instances/{instance.pk}/editor").status_code == 404


def test_programs_are_told_how_to_send_the_key(world: World, owner: Client) -> None:
    instance = world.running()
    page = owner.get(instance.get_absolute_url()).content.decode()
    host = f"i-{instance.pk.hex}.apps.localhost"
    assert (
        f"curl --resolve {host}:80:127.0.0.1 -H &quot;Authorization: token $KEY&quot; http://{host}/api/status" in page
    )
    assert instance.key.reveal() not in page
