"""The catalogue of images: what replaces a retired one, who sees a hidden one, facts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.catalog import facts, selectors, services
from apps.catalog.models import Image, Purpose, Size
from apps.core import audit
from apps.core.errors import Forbidden, Invalid
from tests.tenants import make

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> Any:
    return make.actor(make.admin())


def image(name: str, **more: Any) -> Image:
    return Image.objects.create(**{"name": name, "reference": f"r.example/{name}:1", "purpose": Purpose.DEV, **more})


def test_a_retired_image_leads_along_the_chain_to_one_that_can_be_chosen(admin: Any) -> None:
    old, newer, newest = image("torch-1"), image("torch-2"), image("torch-3")
    services.save_image(actor=admin, image=old, retired=True, replaced_by="torch-2")
    services.save_image(actor=admin, image=newer, retired=True, replaced_by=str(newest.pk))
    old.refresh_from_db()
    person = make.actor(make.user())
    assert selectors.instead_of(person, old) == newest
    assert list(selectors.offered(person, Purpose.DEV)) == [newest]
    services.save_image(actor=admin, image=newest, hidden=True)
    assert selectors.instead_of(person, old) is None  # what is hidden from somebody is not named to them
    assert selectors.instead_of(admin, old) == newest


def test_what_replaces_an_image_is_checked(admin: Any) -> None:
    old, other, task = image("old"), image("other"), image("task", purpose=Purpose.TASK)
    for wrong, fields in (
        ("Only a retired", {"replaced_by": "other"}),
        ("another purpose", {"retired": True, "replaced_by": "task"}),
        ("leads back", {"retired": True, "replaced_by": "old"}),
        ("There is no", {"retired": True, "replaced_by": "nobody"}),
    ):
        with pytest.raises(Invalid) as refused:
            services.save_image(actor=admin, image=old, **fields)
        assert wrong in str(refused.value.errors["replaced_by"]), fields
    services.save_image(actor=admin, image=old, retired=True, replaced_by="other")
    with pytest.raises(Invalid) as refused:
        services.save_image(actor=admin, image=other, retired=True, replaced_by="old")
    assert "leads back" in str(refused.value.errors["replaced_by"])
    back = services.save_image(actor=admin, image=old, retired=False)
    assert back.replaced_by is None
    assert task.replaced_by is None


def test_hidden_images_are_seen_by_their_teams_alone_and_the_change_is_in_the_history(admin: Any) -> None:
    ours, theirs = make.team(name="vision"), make.team(name="speech")
    member, stranger = make.actor(make.user(role_in=ours)), make.actor(make.user(role_in=theirs))
    made = services.save_image(
        actor=admin, name="secret", reference="r.example/s", purpose="dev", hidden=True, teams=["vision", "vision"]
    )
    assert list(selectors.offered(member)) == [made]
    assert list(selectors.offered(stranger)) == []
    services.save_image(actor=admin, image=made, teams=["speech", str(ours.pk)])
    assert list(selectors.offered(stranger)) == [made]
    services.save_image(actor=admin, image=made, teams=[])
    assert list(selectors.offered(member)) == list(selectors.offered(stranger)) == []
    told = [entry.detail.get("teams") for entry in audit.history(made)]
    assert told == [[["speech", "vision"], []], [["vision"], ["speech", "vision"]], ["vision"]]
    with pytest.raises(Invalid):
        services.save_image(actor=admin, image=made, teams=["nobody"])


def test_only_administrators_keep_images(admin: Any) -> None:
    with pytest.raises(Forbidden):
        services.save_image(actor=make.actor(make.user()), image=image("torch"), replaced_by="x")


@pytest.mark.parametrize(
    ("field", "value"),
    [("cuda", "12.x"), ("cuda", "v12"), ("architecture", "sparc"), ("version", "x" * 41), ("reference", "https://r/x")],
)
def test_facts_that_are_none_are_refused(admin: Any, field: str, value: str) -> None:
    with pytest.raises(Invalid) as refused:
        services.save_image(actor=admin, image=image("torch"), **{field: value})
    assert field in refused.value.errors


def test_facts_stand_beside_the_name() -> None:
    digest = "sha256:" + "ab" * 32
    torch = image("torch", version="2.5", cuda="12.4", architecture="arm64", reference=f"r.example/t:2@{digest}")
    assert facts.facts(torch) == ["2.5", "CUDA 12.4", "arm64", "pinned"]
    assert torch.short_reference == "r.example/t:2@abababababab…"
    assert facts.label(torch) == "torch (2.5, CUDA 12.4, arm64, pinned)"
    assert facts.label(image("plain", description="only Python")) == "plain: only Python"


def test_an_image_for_gpus_and_a_size_without_are_said_not_to_go_together() -> None:
    plain, cuda = image("plain"), image("torch", cuda="12.4")
    small, gpu = Size(name="small", gpus=0), Size(name="gpu-1", gpus=1)
    assert facts.mismatch(plain, small) == facts.mismatch(cuda, gpu) == ""
    assert "made for GPUs (CUDA 12.4)" in facts.mismatch(cuda, small)
    assert "stay idle" in facts.mismatch(plain, gpu)
    assert facts.mismatch(Image(name="own", team=make.team()), gpu) == ""  # nothing is known of it


def test_the_form_keeps_all_of_it() -> None:
    team, other = make.team(name="vision"), image("torch-2", version="2.5")
    client = Client()
    client.force_login(make.admin())
    form = {"name": "torch-1", "reference": "r.example/torch:1", "purpose": "dev", "position": "5", "version": "2.4"}
    more = {"cuda": "12.1", "architecture": "amd64", "prepared": "on", "hidden": "on", "teams": "vision\n\n"}
    answer = client.post("/images/new", {**form, **more, "retired": "on", "replaced_by": str(other.pk)})
    assert answer["Location"] == "/images"
    made = Image.objects.as_system().get(name="torch-1")
    assert (made.version, made.cuda, made.architecture, made.prepared) == ("2.4", "12.1", "amd64", True)
    assert (made.retired, made.replaced_by, made.hidden) == (True, other, True)
    page = client.get(f"/images/{made.pk}").content.decode()
    assert "vision</textarea>" in page
    assert f'<option value="{other.pk}" selected>' in page
    listed = client.get("/images").content.decode()
    assert "use torch-2" in listed
    assert "2.4, CUDA 12.1, amd64" in listed
    client.post(f"/images/{made.pk}", {**form, "teams": "", "replaced_by": ""})
    made.refresh_from_db()
    assert (made.hidden, made.retired, made.replaced_by, made.prepared) == (False, False, None, False)
    selectors.with_teams([made])
    assert made.team_names == []
    refused = client.post(f"/images/{made.pk}", {**form, "teams": "nobody"})
    assert "There is no team “nobody”" in refused.content.decode()
    assert team.name == "vision"


def test_rest_tells_the_teams_to_administrators_alone() -> None:
    team = make.team(name="vision")
    client, admin = Client(), make.admin()
    client.force_login(admin)
    body = {"name": "torch", "reference": "r.example/torch:1", "purpose": "dev", "hidden": True, "teams": ["vision"]}
    made = client.post("/api/v1/images", body, "application/json")
    assert made.status_code == 201, made.content
    assert (made.json()["teams"], made.json()["replaced_by"], made.json()["prepared"]) == (["vision"], None, True)
    client.force_login(make.user(role_in=team))
    item = client.get(f"/api/v1/images/{made.json()['id']}").json()
    assert (item["teams"], item["hidden"]) == (None, True)
    client.force_login(make.user())
    assert client.get(f"/api/v1/images/{made.json()['id']}").status_code == 404
    assert client.get("/api/v1/images").json()["items"] == []
