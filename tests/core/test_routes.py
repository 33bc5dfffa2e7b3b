"""Every route of the portal, found in its URL table, tried by everyone who should not get in.

A new route is in the matrix by existing. Objects of another team answer 404 whatever is done to them (403 only where
the page itself is for administrators, which is no secret); nobody without a sign-in gets anything; what a stranger
sends changes no row.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.apps import apps
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from apps.catalog.models import Image, Purpose, Size
from apps.core.models import AuditEntry, Trouble
from apps.flows import services as flows
from apps.flows.models import Attempt, Run
from apps.instances.models import Instance
from apps.storage.models import Volume, VolumeKind
from apps.tenants import sshkeys, tokens
from tests.tenants import make

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

#: Routes that anybody may use: signing in, health. Everything else needs a person.
OPEN = {"core:sign-in", "core:livez", "core:readyz", "api:openapi"}
OPEN |= {"core:language", "core:theme", "api-missing"}
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMFFkY0FTiyKD7QAv+4aUbmlAqO/a/nJDWOwTtzoBGyh"
CONVERTER = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>|\(\?P<(?P<group>\w+)>[^)]*\)")


@dataclass(frozen=True)
class Route:
    """One entry of the URL table: its full name, its pattern and the names of its parameters."""

    name: str
    pattern: str
    params: tuple[str, ...]

    @property
    def is_api(self) -> bool:
        return self.name.startswith("api:")

    def path(self, values: dict[str, str]) -> str:
        """The address with the parameters filled in."""
        found = CONVERTER.sub(lambda m: values[m["name"] or m["group"]], self.pattern)
        return "/" + found.replace("^", "").replace("$", "").replace("\\Z", "")


def routes(found: Any = None, prefix: str = "", space: str = "") -> Iterator[Route]:
    for entry in (found or get_resolver()).url_patterns:
        pattern = prefix + str(entry.pattern).removeprefix("^")
        if isinstance(entry, URLResolver):
            inner = f"{space}{entry.namespace}:" if entry.namespace else space
            yield from routes(entry, pattern, inner)
        elif isinstance(entry, URLPattern):
            names = tuple(m["name"] or m["group"] for m in CONVERTER.finditer(pattern))
            yield Route(f"{space}{entry.name}", pattern, names)


ROUTES = sorted(routes(), key=lambda route: (route.name, route.pattern))


@pytest.fixture
def world() -> dict[str, Any]:
    """One object of each kind in a team, by the word that its routes begin with."""
    queue = make.queue()
    owner = make.user(role_in=queue.team)
    home = Volume.objects.create(
        name="home-owner", queue=queue, owner=owner, kind=VolumeKind.HOME, size_bytes=1, claim="c", state="bound"
    )
    image = Image.objects.create(name="image", reference="a/b", purpose=Purpose.DEV)
    Image.objects.create(name="tasks", reference="a/c", purpose=Purpose.TASK)
    size = Size.objects.create(name="size", cpu_millis=1, memory_bytes=1 << 20)
    instance = Instance.objects.create(
        name="secret-notebook", owner=owner, queue=queue, image=image, size=size, home=home, state="stopped"
    )
    node = {"name": "main", "executor": "container", "image": "tasks", "size": "size", "command": ["true"]}
    document = {"name": "secret-flow", "queue": queue.name, "nodes": [node]}
    flow = flows.create_flow(actor=make.actor(owner), document=document)
    run = Run.objects.create(flow=flow, version=flow.version, queue=queue, state="succeeded", trigger="manual")
    attempt = Attempt.objects.create(
        run=run, queue=queue, node="main", number=1, not_before=timezone.now(), state="succeeded"
    )
    token, _text = tokens.create(actor=make.actor(owner), name="t")
    return {
        "queues": queue,
        "teams": queue.team,
        "users": owner,
        "volumes": home,
        "instances": instance,
        "flows": flow,
        "runs": run,
        "attempts": attempt,
        "account": token,
        "tokens": token,
        "ssh-keys": sshkeys.add(actor=make.actor(owner), key=PUBLIC_KEY),
        "images": image,
        "sizes": size,
        "clusters": queue.cluster,
        "audit": AuditEntry.objects.as_system().filter(actor_id=owner.pk).first(),
        "troubles": Trouble.objects.create(
            code="row_set_aside",
            subject="s",
            params={"what": "secret-row", "times": 3},
            since=timezone.now(),
            seen_at=timezone.now(),
        ),
    }


#: What everybody may know of (administrators change it).
PUBLIC = {"images", "sizes", "clusters"}


def snapshot() -> dict[str, list[Any]]:
    """Every row that people own, to see that nothing changed."""
    models = [model for model in apps.get_models() if model.__module__.startswith("apps.")]
    kept = [model for model in models if model.__name__ not in {"AuditEntry", "ApiToken", "OutboxMessage"}]
    return {model.__name__: sorted(model._base_manager.values_list("pk", *_states(model)), key=str) for model in kept}


def _states(model: Any) -> list[str]:
    fields = {field.name for field in model._meta.concrete_fields}
    return sorted(fields & {"state", "desired", "generation", "name", "size_bytes", "role", "is_active"})


def values_for(route: Route, world: dict[str, Any]) -> dict[str, str] | None:
    """Parameters that lead to the owner's objects; None for a route that has no object."""
    if "pk" not in route.params:
        return None
    word = next(part for part in route.pattern.removeprefix("api/v1/").split("/") if part)
    values = {"pk": str(world[word].pk), "tab": "overview", "user": str(world["users"].pk)}
    return {name: values[name] for name in route.params}


def people(world: dict[str, Any]) -> dict[str, Client]:
    """A member of another team and somebody without a team, with a session and with a token."""
    found: dict[str, Client] = {}
    for who, person in (("of another team", make.user(role_in=make.team())), ("of no team", make.user())):
        session = Client()
        session.force_login(person)
        found[f"session {who}"] = session
        _row, text = tokens.create(actor=make.actor(person), name="t")
        found[f"token {who}"] = Client(headers={"Authorization": f"Bearer {text}"})
    return found


def tries(route: Route) -> list[tuple[str, str]]:
    """Who tries what: the REST API with a token, pages with a session; somebody without a team only looks."""
    way = "token" if route.is_api else "session"
    return [*((f"{way} of another team", method) for method in METHODS), (f"{way} of no team", "get")]


METHODS = ("get", "post", "put", "patch", "delete")


def test_the_table_is_read_whole() -> None:
    names = {route.name for route in ROUTES}
    for name in ("tenants:queue", "instances:key", "flows:log-part", "api:volume-detail", "core:audit"):
        assert name in names
    assert len(ROUTES) > 100


def test_objects_of_another_team_are_not_there_whatever_is_done_to_them(world: dict[str, Any]) -> None:
    before, wrong = snapshot(), []
    clients = people(world)
    before = snapshot()
    for route in ROUTES:
        values = values_for(route, world)
        word = next((part for part in route.pattern.removeprefix("api/v1/").split("/") if part), "")
        if values is None or word in PUBLIC:
            continue
        for who, method in tries(route):
            body = {"content_type": "application/json"} if route.is_api else {}
            answer = getattr(clients[who], method)(route.path(values), **body)
            if answer.status_code not in {404, 403, 405}:
                wrong.append((who, method, route.path(values), answer.status_code))
            text = answer.content.decode(errors="replace") if not answer.streaming else ""
            if "secret-" in text or "home-owner" in text:
                wrong.append((who, method, route.path(values), "shows a name"))
    assert not wrong, "\n".join(map(str, wrong))
    assert snapshot() == before


def test_what_does_not_exist_and_what_is_hidden_answer_alike(world: dict[str, Any]) -> None:
    client = people(world)["session of another team"]
    for route in ROUTES:
        values = values_for(route, world)
        word = next((part for part in route.pattern.removeprefix("api/v1/").split("/") if part), "")
        if values is None or word in PUBLIC:
            continue
        hidden = client.get(route.path(values))
        absent = client.get(route.path({**values, "pk": "999999999" if word == "audit" else str(uuid.uuid4())}))
        assert hidden.status_code == absent.status_code, route
        if route.is_api and hidden.status_code == 404:
            assert hidden.json() == absent.json(), route


def test_administrators_things_are_changed_by_nobody_else(world: dict[str, Any]) -> None:
    clients, wrong = people(world), []
    before = snapshot()
    for route in ROUTES:
        values = values_for(route, world)
        word = next((part for part in route.pattern.removeprefix("api/v1/").split("/") if part), "")
        if word not in PUBLIC | {"users"}:
            continue
        for who, method in tries(route):
            if method == "get":
                continue
            body = {"data": {}, "content_type": "application/json"} if route.is_api else {}
            answer = getattr(clients[who], method)(route.path(values or {}), **body)
            if answer.status_code not in {403, 404, 405, 422}:
                wrong.append((who, method, route.path(values or {}), answer.status_code))
    assert wrong == []
    assert snapshot() == before


@pytest.mark.parametrize("method", METHODS)
def test_without_a_sign_in_nothing_is_shown_and_nothing_happens(world: dict[str, Any], method: str) -> None:
    client, wrong = Client(), []
    before = snapshot()
    for route in ROUTES:
        if route.name in OPEN:
            continue
        values = values_for(route, world)
        if values is None and route.params:
            values = dict.fromkeys(route.params, "x")
        body = {"content_type": "application/json"} if route.is_api else {}
        answer = getattr(client, method)(route.path(values or {}), **body)
        signs_in = answer.status_code == 302 and answer["Location"].startswith("/sign-in")
        if not signs_in and answer.status_code not in {401, 403, 404, 405}:
            wrong.append((route.name, route.path(values or {}), answer.status_code))
    assert wrong == []
    assert snapshot() == before


def test_an_administrator_opens_every_page_without_a_fault(world: dict[str, Any]) -> None:
    client, wrong = Client(), []
    client.force_login(make.admin())
    for route in ROUTES:
        values = values_for(route, world)
        if (values is None and route.params) or route.name in {"api:openapi"}:
            continue
        answer = client.get(route.path(values or {}))
        if answer.status_code >= 500:
            wrong.append((route.name, answer.status_code))
    assert wrong == []
