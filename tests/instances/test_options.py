"""Variables, start-up script, shared memory and time zone: what is refused, and what reaches the cluster."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client

from apps.core.errors import Invalid
from apps.instances import options
from apps.instances.models import Instance
from apps.instances.options import Options
from apps.instances.spec import objects_of
from tests.instances.conftest import MIB, World
from tests.instances.test_api import Rest

LIST = "/api/v1/instances"
GIB = 1 << 30


def wrong(**given: Any) -> dict[str, Any]:
    with pytest.raises(Invalid) as caught:
        options.check(Options(**given), memory_bytes=GIB)
    assert caught.value.code == "options_invalid"
    assert caught.value.next
    return dict(caught.value.errors)


@pytest.mark.parametrize(
    "name", ["MLPORTAL_HOST", "MLPORTAL_", "1ST", "A B", "A=B", "", "Ä", "A-B", "PATH", "HOME", "A\n", "N" * 256]
)
def test_a_name_that_is_the_portal_s_or_none_is_refused_where_it_stands(name: str) -> None:
    assert list(wrong(env={name: "x"})) == [f"env.{name[:60]}"]


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"env": {"A": "x" * 4097}}, "env.A"),
        ({"env": {"A": "x\0"}}, "env.A"),
        ({"env": {f"A{n}": "x" for n in range(65)}}, "env"),
        ({"env": {f"A{n}": "x" * 4096 for n in range(9)}}, "env"),
        ({"script": "x" * (16 * 1024 + 1)}, "script"),
        ({"script": "echo \0"}, "script"),
        ({"shm_bytes": GIB + 1}, "shm_bytes"),
        ({"shm_bytes": 1 << 20}, "shm_bytes"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
    ],
)
def test_what_is_too_large_or_no_zone_is_refused_where_it_stands(given: dict[str, Any], place: str) -> None:
    assert list(wrong(**given)) == [place]


def test_what_is_allowed_at_the_edges_comes_back_in_one_spelling() -> None:
    given = Options(
        env={"A": "x" * 4096, "_b1": ""}, script="echo 1\r\necho 2", shm_bytes=GIB, time_zone="Asia/Shanghai"
    )
    found = options.check(given, memory_bytes=GIB)
    assert found.script == "echo 1\necho 2\n"
    assert options.of(found.stored()) == found
    assert options.check(Options(script=" \r\n "), memory_bytes=GIB).stored() == {}


def test_a_tz_of_one_s_own_goes_before_the_time_zone() -> None:
    assert Options(time_zone="Asia/Tokyo").environment() == {"TZ": "Asia/Tokyo"}
    assert Options(time_zone="Asia/Tokyo", env={"TZ": "UTC"}).environment() == {"TZ": "UTC"}


MORE = Options(env={"GREETING": "hello $(HOME)"}, script="echo started", shm_bytes=96 * MIB, time_zone="Asia/Shanghai")


def test_they_reach_the_pod_and_the_secret_and_the_writes_stay_four(world: World) -> None:
    instance = world.create(more=MORE)
    world.reconcile(instance)
    assert len(world.cluster.calls) == 4
    pod = world.cluster.one("StatefulSet")["spec"]["template"]["spec"]
    env = {row["name"]: row["value"] for row in pod["containers"][0]["env"]}
    assert (env["GREETING"], env["TZ"]) == ("hello $$(HOME)", "Asia/Shanghai")
    assert env["MLPORTAL_INSTANCE_ID"] == str(instance.pk)
    shm = next(volume for volume in pod["volumes"] if volume["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": str(96 * MIB)} or "96Mi" in str(shm)
    script = world.cluster.one("Secret")["data"]["start-script"]
    assert base64.b64decode(script) == b"echo started\n"
    assert "echo started" not in str(world.cluster.one("StatefulSet"))


def test_the_yaml_tab_shows_variables_and_hides_the_secret(world: World) -> None:
    instance = world.create(more=MORE)
    secret, workload, *_ = objects_of(instance)
    assert set(secret["data"].values()) == {secret["data"]["key"]} and "start-script" in secret["data"]
    assert "GREETING" in str(workload)


def test_rest_takes_and_tells_them_and_refuses_beside_the_place(world: World) -> None:
    rest = Rest(world.owner)
    body = {"queue": world.queue.name, "image": world.image.name, "size": world.small.name}
    wanted = {"env": {"A": "1"}, "script": "true", "shm_bytes": 64 * MIB, "time_zone": "Europe/Berlin"}
    made = rest.post(LIST, {**body, **wanted})
    assert made.status_code == 201
    assert made.json()["options"] == {**wanted, "script": "true\n"}
    refused = rest.post(LIST, {**body, "env": {"MLPORTAL_HOST": "evil"}})
    assert (refused.status_code, refused.json()["code"]) == (422, "options_invalid")
    assert refused.json()["errors"][0]["pointer"] == "/env/MLPORTAL_HOST"
    assert Instance.objects.as_system().count() == 1


def test_the_form_has_rows_for_variables_and_keeps_what_was_typed(world: World) -> None:
    client = Client()
    client.force_login(world.owner)
    chosen = {"queue": str(world.queue.pk), "image": str(world.image.pk), "size": str(world.small.pk)}
    typed = {"env-name": ["A", "MLPORTAL_X", ""], "env-value": ["1", "typed by me", ""], "shm_mib": "64"}
    refused = client.post("/instances/new", {**chosen, **typed})
    assert refused.status_code == 422
    text = refused.content.decode()
    assert "typed by me" in text and "belong to the portal" in text
    made = client.post("/instances/new", {**chosen, **typed, "env-name": ["A", "B", ""], "time_zone": "Asia/Tokyo"})
    assert made.status_code == 302
    instance = Instance.objects.as_system().get()
    assert instance.options == {
        "env": {"A": "1", "B": "typed by me"}, "shm_bytes": 64 * MIB, "time_zone": "Asia/Tokyo",
    }  # fmt: skip
    again = client.get("/instances/new").content.decode()
    assert '<option value="Asia/Tokyo" selected>' in again


def test_the_panel_says_the_same_for_the_command_line(world: World) -> None:
    client = Client()
    client.force_login(world.owner)
    chosen = {"queue": str(world.queue.pk), "image": str(world.image.pk), "size": str(world.small.pk)}
    text = client.post("/instances/new/panel", {**chosen, "env-name": ["A"], "env-value": ["b c"]}).content.decode()
    assert "--env &#x27;A=b c&#x27;" in text
