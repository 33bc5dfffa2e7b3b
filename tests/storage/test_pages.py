"""Pages of volumes."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from apps.clusters import watching
from apps.storage import services, uses
from apps.storage.models import Volume
from apps.storage.reconcile import objects_of
from apps.storage.uses import Use
from kubekit import names
from tests.tenants import make

pytestmark = pytest.mark.django_db
GIB = make.GIB


@pytest.fixture
def queue():
    return make.queue(name="vision")


@pytest.fixture
def owner(queue):
    return make.user(role_in=queue.team)


@pytest.fixture
def client(owner) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def test_a_volume_is_made_shown_grown_and_deleted(client: Client, queue) -> None:
    page = client.get("/volumes/new?queue=vision").content.decode()
    assert f'value="{queue.pk}" selected' in page
    assert "0 B of 100 GiB" in re.sub(r"<[^>]+>", "", page)
    once = re.search(r'name="once" value="([^"]+)"', page)[1]
    form = {"name": "imagenet", "queue": queue.pk, "size_bytes": "10 GiB", "once": once}
    answers = [client.post("/volumes/new", form) for _ in range(2)]
    volume = Volume.objects.as_system().get()
    assert {answer["Location"] for answer in answers} == {f"/volumes/{volume.pk}"}
    assert "imagenet" in client.get("/volumes?queue=vision&kind=data").content.decode()
    assert "Nothing mounts it now." in client.get(f"/volumes/{volume.pk}").content.decode()
    client.post(f"/volumes/{volume.pk}/expand", {"size_bytes": "20"})
    volume.refresh_from_db()
    assert volume.size_bytes == 20 * GIB
    refused = client.post(f"/volumes/{volume.pk}/expand", {"size_bytes": "1 GiB"})
    assert refused.status_code == 422
    assert "can only grow" in refused.content.decode()
    client.post(f"/volumes/{volume.pk}/delete")
    volume.refresh_from_db()
    assert volume.state == "deleting"


def test_an_over_quota_volume_keeps_what_was_typed_and_says_what_fits(client: Client, queue) -> None:
    answer = client.post("/volumes/new", {"name": "big", "queue": queue.pk, "size_bytes": "101 GiB"})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert 'value="101 GiB"' in page
    assert "Ask for at most 100 GiB storage." in page


def test_what_is_lost_and_why_not_stand_on_the_page(client: Client, queue, owner, monkeypatch) -> None:
    home = services.ensure_home(actor=make.actor(owner), queue=queue)
    page = client.get(f"/volumes/{home.pk}").content.decode()
    assert "every file in it are deleted for good" in page
    monkeypatch.setattr(uses, "_finders", [lambda pk: [Use(label="instance nb", url="/i", path="/root")]])
    page = client.get(f"/volumes/{home.pk}").content.decode()
    assert "used by instance nb" in page
    assert 'href="/i"' in page


def test_others_see_no_page_and_viewers_no_buttons(client: Client, queue, owner) -> None:
    volume = services.create(actor=make.actor(owner), queue=queue, name="v", size_bytes=GIB)
    stranger, viewer = Client(), Client()
    stranger.force_login(make.user())
    viewer.force_login(make.user(role_in=queue.team, role="viewer"))
    for path in ("", "/events", "/history", "/expand"):
        assert stranger.get(f"/volumes/{volume.pk}{path}").status_code == 404
    page = viewer.get(f"/volumes/{volume.pk}").content.decode()
    assert 'data-verb="delete"' not in page
    viewer.post(f"/volumes/{volume.pk}/delete")
    volume.refresh_from_db()
    assert volume.state == "creating"


def test_the_list_is_one_statement_at_any_number_of_rows(client, queue, owner, django_assert_num_queries) -> None:
    for number in range(4):
        services.create(actor=make.actor(owner), queue=queue, name=f"v{number}", size_bytes=GIB)
    client.get("/volumes")
    with django_assert_num_queries(2 + 3):  # session, person; volumes, queues of the filter, roles
        client.get("/volumes", headers={"HX-Request": "true"})


def report(volume: Volume, reason: str, message: str, *, kind: str = "PersistentVolumeClaim") -> None:
    """The cluster's event about the volume's claim, as the control process hands it to every app."""
    claim = objects_of(volume)[0]
    event = {
        "reason": reason,
        "message": message,
        "type": "Warning" if reason.endswith("Failed") else "Normal",
        "lastTimestamp": "2026-11-30T10:00:00Z",
        "involvedObject": {"kind": kind, "name": claim["metadata"]["name"], "namespace": volume.queue.namespace},
    }
    for handler in watching.registry.events:
        handler(volume.queue.cluster_id, [(event, claim["metadata"]["labels"])])


def test_an_event_about_the_claim_reaches_the_volumes_and_the_queues_tab_in_plain_words(
    client: Client, queue, owner
) -> None:
    volume = services.create(actor=make.actor(owner), queue=queue, name="imagenet", size_bytes=GIB)
    for page in (f"/volumes/{volume.pk}/events", f"/queues/{queue.pk}/events"):
        assert "stands here" in client.get(page).text
    report(volume, "ProvisioningFailed", "the disk is full")
    report(volume, "ProvisioningFailed", "the disk is full")
    for page in (f"/volumes/{volume.pk}/events", f"/queues/{queue.pk}/events"):
        text = client.get(page).text
        assert text.count("Storage for the volume could not be made: the disk is full") == 1
        assert "ProvisioningFailed: the disk is full" in text
        assert "stands here" not in text
    assert f'<a href="/volumes/{volume.pk}">imagenet</a>' in client.get(f"/queues/{queue.pk}/events").text
    found = client.get(f"/api/v1/volumes/{volume.pk}/events").json()["items"]
    assert [(row["reason"], row["warning"]) for row in found] == [("ProvisioningFailed", True)]
    assert client.get(f"/api/v1/queues/{queue.pk}/events").json()["items"][0]["about"] == "imagenet"


def test_a_reported_event_changes_neither_the_state_nor_its_reason(queue, owner) -> None:
    volume = services.create(actor=make.actor(owner), queue=queue, name="v", size_bytes=GIB)
    Volume.objects.as_system().filter(pk=volume.pk).update(reason_code="volume_refused", reason_params={"x": 1})
    report(volume, "Provisioning", "External provisioner is provisioning volume")
    volume.refresh_from_db()
    assert (volume.state, volume.reason_code, volume.reason_params) == ("creating", "volume_refused", {"x": 1})
    assert [row["sentence"] for row in volume.last_events] == ["Storage for the volume is being made."]


def test_events_of_another_cluster_and_of_a_deleted_volume_are_not_kept(queue, owner) -> None:
    volume = services.create(actor=make.actor(owner), queue=queue, name="v", size_bytes=GIB)
    labels = objects_of(volume)[0]["metadata"]["labels"]
    for handler in watching.registry.events:
        handler(volume.pk, [({"reason": "Provisioning", "message": "m"}, labels)])
        handler(queue.cluster_id, [({"reason": "Provisioning", "message": "m"}, {**labels, names.ID: "no id"})])
    Volume.objects.as_system().filter(pk=volume.pk).update(state="deleted")
    report(volume, "Provisioning", "m")
    volume.refresh_from_db()
    assert volume.last_events == []


def test_a_home_of_another_person_is_not_named_among_the_queues_events(client: Client, queue) -> None:
    other = make.user(role_in=queue.team)
    home = services.ensure_home(actor=make.actor(other), queue=queue)
    report(home, "ProvisioningFailed", "no room")
    text = client.get(f"/queues/{queue.pk}/events").text
    assert home.name not in text
    assert "no room" not in text


def test_the_yaml_tab_shows_the_claim_that_the_portal_writes(client: Client, queue, owner) -> None:
    volume = Volume.objects.create(name="v", queue=queue, owner=owner, size_bytes=2**30, claim="v-claim", state="bound")
    text = client.get(f"/volumes/{volume.pk}/yaml").content.decode()
    assert "kind: PersistentVolumeClaim" in text
    assert "storage: 1Gi" in text
    assert queue.namespace in text
