"""What an instance starts from: retired images lead to others; own references where the team may, not on localkube."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from apps.catalog.models import Image, Purpose
from apps.clusters.models import Cluster
from apps.core import audit
from apps.core.errors import Invalid
from apps.instances import services
from apps.instances.models import Instance
from apps.tenants import imagerules
from apps.tenants.models import Team
from tests.instances.conftest import World
from tests.tenants import make

OWN = "r.example/team/app:1"


def allow(world: World, *prefixes: str) -> None:
    imagerules.allow(
        actor=make.actor(make.admin()), team=world.queue.team, own_images=True, image_prefixes=list(prefixes)
    )


def code_of(world: World, **wanted: Any) -> tuple[str, str]:
    """The code and the next step of the refusal, which leaves nothing behind."""
    before = (Instance.objects.as_system().count(), Image.objects.as_system().count())
    with pytest.raises(Invalid) as refused:
        world.create(**wanted)
    assert (Instance.objects.as_system().count(), Image.objects.as_system().count()) == before
    assert refused.value.errors
    return str(refused.value.code), str(refused.value.next)


@pytest.fixture
def client(world: World) -> Client:
    cache.clear()
    found = Client()
    found.force_login(world.owner)
    return found


# --- retired -----------------------------------------------------------------------------------------------------


@pytest.fixture
def retired(world: World) -> Image:
    return Image.objects.create(
        name="old", reference="r.example/old:1", purpose=Purpose.DEV, retired=True, replaced_by=world.image
    )


def test_who_asks_for_a_retired_image_is_told_what_to_use(world: World, retired: Image) -> None:
    with pytest.raises(Invalid) as refused:
        world.create(image="old")
    assert refused.value.code == "image_retired"
    assert refused.value.detail == "The image “old” is retired: use “jupyter”."
    assert refused.value.data == {"use": "jupyter"}
    Image.objects.as_system().filter(pk=retired.pk).update(replaced_by=None)
    assert code_of(world, image="old") == ("image_retired", "Choose another one.")


def test_the_form_leads_from_a_retired_image_to_the_other(world: World, client: Client, retired: Image) -> None:
    Image.objects.create(name="first", reference="r.example/first", purpose=Purpose.DEV, position=1)
    page = client.get(f"/instances/new?image={retired.name}").content.decode()
    assert "The image “old” is retired: use “jupyter”." in page
    assert f'<option value="{world.image.pk}" selected>' in page
    assert "data-notice" not in client.get("/instances/new").content.decode()


def test_what_uses_a_retired_image_starts_again(world: World) -> None:
    instance = world.running()
    services.stop(actor=world.actor, instance=instance)
    world.reconcile(instance)
    world.cluster.remove_pod()
    world.reconcile(instance)
    Image.objects.as_system().filter(pk=world.image.pk).update(retired=True)
    started = services.start(actor=world.actor, instance=instance)
    assert started.state == "starting"


# --- own references ----------------------------------------------------------------------------------------------


def test_an_image_of_ones_own_is_kept_once_per_team_and_written_in_full(world: World) -> None:
    allow(world)
    one, two = (
        world.create(image="", own_image=" debian:bookworm "),
        world.create(image="", own_image="debian:bookworm"),
    )
    assert one.image == two.image
    assert (one.image.reference, one.image.prepared) == ("docker.io/library/debian:bookworm", False)
    assert one.name == "debian-1"
    assert audit.history(one)[-1].detail["image"] == "docker.io/library/debian:bookworm"
    assert not Image.objects.for_actor(make.actor(world.stranger)).filter(pk=one.image_id).exists()


def test_an_own_image_is_in_nobodys_catalogue(world: World, client: Client) -> None:
    allow(world)
    own = world.create(image="", own_image="jupyter").image
    assert own.name == "jupyter"
    assert world.create(image="jupyter").image == world.image
    assert [item["name"] for item in client.get("/api/v1/images").json()["items"]] == ["jupyter"]
    assert str(own.pk) not in client.get("/instances/new").content.decode()
    assert "docker.io/library/jupyter" not in client.get("/images").content.decode()
    assert code_of(world, image=str(own.pk))[0] == "image_unknown"
    client.force_login(make.admin())
    assert client.get(f"/images/{own.pk}").status_code == 404


def test_own_images_need_the_teams_leave(world: World) -> None:
    code, following = code_of(world, image="", own_image=OWN)
    assert code == "own_images_off"
    assert "platform administrator" in following


def test_own_images_come_from_allowed_registries_alone(world: World) -> None:
    allow(world, "r.example/team", "docker.io/library")
    assert world.create(image="", own_image=OWN).image.reference == OWN
    assert world.create(image="", own_image="debian").image.reference == "docker.io/library/debian"
    code, following = code_of(world, image="", own_image="r.example/team-evil/app")
    assert code == "registry_not_allowed"
    assert "docker.io/library, r.example/team" in following


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("https://r.example/app", "reference_scheme"),
        ("r.example/App", "reference_upper_case"),
        ("a b", "reference_space"),
        ("app:", "reference_bad_tag"),
        ("app@sha256:1", "reference_bad_digest"),
        ("x" * 600, "reference_too_long"),
        ("../app", "reference_bad_registry"),
    ],
)
def test_what_is_no_reference_is_refused_beside_its_field(world: World, text: str, code: str) -> None:
    allow(world)
    with pytest.raises(Invalid) as refused:
        world.create(image="", own_image=text)
    assert refused.value.code == code
    assert list(refused.value.errors) == ["own_image"]


def test_the_embedded_cluster_runs_no_images_of_others(world: World) -> None:
    allow(world)
    Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(embedded=True)
    assert code_of(world, image="", own_image=OWN)[0] == "own_images_embedded"
    Image.objects.create(name="bare", reference="r.example/bare", purpose=Purpose.DEV, prepared=False)
    assert code_of(world, image="bare")[0] == "image_needs_cluster"
    assert world.create().state == "starting"


def test_one_image_is_named_and_only_one(world: World) -> None:
    allow(world)
    assert code_of(world, image="jupyter", own_image=OWN)[0] == "image_twice"
    assert code_of(world, image="")[0] == "required"


# --- pages and REST ----------------------------------------------------------------------------------------------


def test_the_form_takes_an_own_image_or_says_why_not(world: World, client: Client) -> None:
    assert "Your teams use images of the catalogue alone" in client.get("/instances/new").content.decode()
    form = {"queue": str(world.queue.pk), "size": str(world.small.pk), "image": str(world.image.pk)}
    refused = client.post("/instances/new", {**form, "own_image": OWN})
    assert refused.status_code == 422
    assert "uses images of the catalogue alone" in refused.content.decode()
    assert OWN in refused.content.decode()  # nothing typed is lost
    allow(world)
    assert client.post("/instances/new", {**form, "own_image": OWN}).status_code == 302
    assert Instance.objects.as_system().get().image.reference == OWN
    Cluster.objects.as_system().filter(pk=world.queue.cluster_id).update(embedded=True)
    assert "that needs a real cluster" in client.get("/instances/new").content.decode()


def test_the_panel_tells_what_an_own_image_means(world: World, client: Client) -> None:
    form = {"queue": str(world.queue.pk), "size": str(world.small.pk), "image": str(world.image.pk)}
    panel = client.post("/instances/new/panel", {**form, "own_image": OWN}).content.decode()
    assert "uses images of the catalogue alone" in panel
    assert "portalctl" not in panel
    allow(world)
    panel = client.post("/instances/new/panel", {**form, "own_image": OWN}).content.decode()
    assert "portalctl instance create --own-image" in panel
    assert "Its tag may come to mean another image" in panel
    pinned = client.post("/instances/new/panel", {**form, "own_image": f"{OWN}@sha256:{'0' * 64}"}).content.decode()
    assert "Pinned by its digest" in pinned
    assert Image.objects.as_system().count() == 1  # looking stores nothing


def test_the_panel_explains_an_image_for_gpus_on_a_size_without(world: World, client: Client) -> None:
    Image.objects.as_system().filter(pk=world.image.pk).update(cuda="12.4")
    form = {"queue": str(world.queue.pk), "size": str(world.small.pk), "image": str(world.image.pk)}
    assert "made for GPUs (CUDA 12.4)" in client.post("/instances/new/panel", form).content.decode()


def test_rest_takes_own_images_and_administrators_set_the_rule(world: World, client: Client) -> None:
    body = {"own_image": OWN, "size": "small", "queue": world.queue.name}
    refused = client.post("/api/v1/instances", body, "application/json")
    assert (refused.status_code, refused.json()["code"]) == (422, "own_images_off")
    where = f"/api/v1/teams/{world.queue.team_id}/own-images"
    rule = {"own_images": True, "image_prefixes": ["R.EXAMPLE", "https://x"]}
    assert client.post(where, rule, "application/json").status_code == 403
    admin = Client()
    admin.force_login(make.admin())
    wrong = admin.post(where, rule, "application/json")
    assert wrong.json()["code"] == "prefix_invalid"
    assert "https://x" in str(wrong.json()["errors"])
    good = admin.post(where, {**rule, "image_prefixes": ["r.example/"]}, "application/json").json()
    assert (good["own_images"], good["image_prefixes"]) == (True, ["r.example"])
    assert client.post("/api/v1/instances", body, "application/json").status_code == 201
    team = Team.objects.as_system().get(pk=world.queue.team_id)
    assert audit.history(team)[0].verb == "team.own-images"


def test_the_rule_has_a_page_for_administrators(world: World, client: Client) -> None:
    where = f"/teams/{world.queue.team_id}/own-images"
    assert client.get(where).status_code == 403
    client.force_login(make.admin())
    answer = client.post(where, {"own_images": "on", "image_prefixes": "r.example/team\n\ndocker.io"})
    assert answer["Location"] == f"/teams/{world.queue.team_id}"
    page = client.get(answer["Location"]).content.decode()
    assert "from docker.io, r.example/team" in page
    wrong = client.post(where, {"own_images": "on", "image_prefixes": "r.example\nno registry"})
    assert "This is no registry: “no registry”." in wrong.content.decode()
