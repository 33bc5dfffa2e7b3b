"""What cannot be forgotten: whose rows one reads, and that secrets do not show."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from apps.clusters.models import Cluster
from apps.core.secret import Secret, Undecryptable, decrypt
from apps.storage.models import Volume
from apps.tenants.models import Queue


@pytest.mark.parametrize(
    "method", ["all", "filter", "get", "first", "exists", "count", "values_list", "update_or_create"]
)
def test_a_manager_without_an_actor_refuses(method: str) -> None:
    with pytest.raises(TypeError, match="for_actor"):
        getattr(Volume.objects, method)()


def test_related_rows_still_need_an_actor(queue: Queue) -> None:
    with pytest.raises(TypeError, match="for_actor"):
        queue.volumes.all()
    assert list(queue.volumes.as_system()) == []


def test_a_secret_column_is_encrypted_in_the_table_and_masked_everywhere(queue: Queue) -> None:
    cluster = Cluster.objects.create(
        name="k", server="https://k", credentials="canary-token", apps_domain="b.test", state="pending"
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT credentials FROM clusters_cluster WHERE id = %s", [cluster.pk])
        stored = cursor.fetchone()[0]
    read = Cluster.objects.as_system().get(pk=cluster.pk).credentials
    assert "canary" not in stored and read.reveal() == "canary-token"
    assert "canary" not in f"{read} {read!r} {[read]}"
    with pytest.raises(TypeError):
        json.dumps(read)
    with pytest.raises(TypeError, match="searched"):
        Cluster.objects.as_system().filter(credentials="canary-token").exists()


def test_a_value_from_another_key_is_named_as_such(settings: object) -> None:
    with pytest.raises(Undecryptable):
        decrypt("gAAAAABnot-ours")
    assert Secret("") == Secret("") and not Secret("")
