"""Pages of the catalogue."""

from __future__ import annotations

import pytest
from django.test import Client

from apps.catalog.models import Image, Purpose, Size
from tests.tenants import make

pytestmark = pytest.mark.django_db
GIB = make.GIB


def signed_in(person) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_administrators_keep_images_and_everybody_sees_them() -> None:
    admin, user = signed_in(make.admin()), signed_in(make.user())
    form = {"name": "torch", "reference": "team/torch:2", "purpose": "dev", "position": "5"}
    assert admin.post("/images/new", form)["Location"] == "/images"
    image = Image.objects.as_system().get()
    assert "team/torch:2" in user.get("/images?purpose=dev").content.decode()
    assert f"/images/{image.pk}" not in user.get("/images").content.decode()
    assert user.post(f"/images/{image.pk}", {**form, "name": "mine"}).status_code == 403
    admin.post(f"/images/{image.pk}", {**form, "retired": "on"})
    image.refresh_from_db()
    assert (image.name, image.retired) == ("torch", True)
    assert "torch" not in user.get("/images?retired=no").content.decode().split("<main")[1]


def test_a_size_is_typed_in_cpus_and_gib() -> None:
    admin = signed_in(make.admin())
    form = {"name": "xl", "cpu_millis": "1.5", "memory_bytes": "3", "gpus": "1", "gpu_resource": "nvidia.com/gpu"}
    admin.post("/sizes/new", {**form, "position": "1"})
    size = Size.objects.as_system().get()
    assert (size.cpu_millis, size.memory_bytes, size.gpus) == (1500, 3 * GIB, 1)
    page = admin.get(f"/sizes/{size.pk}").content.decode()
    assert 'value="1.5"' in page
    assert 'value="3 GiB"' in page
    refused = admin.post("/sizes/new", {**form, "position": "1"})
    assert refused.status_code == 409
    assert "taken" in refused.content.decode()


def test_lists_are_one_statement(django_assert_num_queries) -> None:
    client = signed_in(make.user())
    for number in range(4):
        Image.objects.create(name=f"i{number}", reference="a/b", purpose=Purpose.TASK)
    client.get("/images")
    with django_assert_num_queries(2 + 1):
        listed = client.get("/images", headers={"HX-Request": "true"})
    assert all(f"i{number}" in listed.text for number in range(4))
