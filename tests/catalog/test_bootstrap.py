"""The first start makes everything that a person needs; later starts add nothing and refresh addresses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from io import StringIO

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client

from apps.catalog.models import Image, Size
from apps.clusters import access
from apps.clusters.models import Cluster
from apps.tenants.models import Membership, Queue, Team, User
from kubekit import incluster

pytestmark = pytest.mark.django_db

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: local
clusters: [{{name: local, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: "{token}"}}}}]
contexts: [{{name: local, context: {{cluster: local, user: me}}}}]
"""


def bootstrap() -> list[str]:
    out = StringIO()
    call_command("bootstrap", stdout=out)
    return out.getvalue().splitlines()


@pytest.fixture
def kubeconfig(tmp_path, monkeypatch):
    home = replace(settings.ENVIRONMENT.home, root=tmp_path)
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, home=home))
    path = settings.ENVIRONMENT.kubeconfig
    path.parent.mkdir(parents=True)
    path.write_text(KUBECONFIG.format(port=6443, token="one"))
    return path


def test_the_first_start_makes_what_the_documentation_promises(kubeconfig) -> None:
    lines = bootstrap()
    shown = [line for line in lines if line.startswith("administrator password: ")]
    assert len(shown) == 1
    assert Client().login(username="admin", password=shown[0].removeprefix("administrator password: "))
    sizes = {s.name: (s.cpu_millis, s.memory_bytes >> 30, s.gpus) for s in Size.objects.as_system()}
    assert sizes == {"small": (500, 1, 0), "medium": (1000, 2, 0), "large": (2000, 4, 0), "gpu-1": (2000, 4, 1)}
    images = {(i.name, i.reference, i.purpose) for i in Image.objects.as_system()}
    assert images == {("jupyter", "mlportal/jupyter:1", "dev"), ("python", "mlportal/python:1", "task")}
    cluster, queue = Cluster.objects.as_system().get(), Queue.objects.as_system().get()
    assert (cluster.name, cluster.embedded, cluster.state) == ("local", True, "pending")
    assert (queue.name, queue.team.name, queue.cluster_id) == ("default", "default", cluster.pk)
    assert queue.cpu_millis <= 4000
    assert Membership.objects.as_system().get().role == "admin"


def test_a_second_start_changes_nothing_and_is_quick(kubeconfig, django_assert_max_num_queries) -> None:
    bootstrap()
    before = {m: list(m.objects.as_system().order_by("pk").values()) for m in (Cluster, Queue, Team, User, Size, Image)}
    with django_assert_max_num_queries(20):
        assert bootstrap() == []
    after = {m: list(m.objects.as_system().order_by("pk").values()) for m in (Cluster, Queue, Team, User, Size, Image)}
    assert after == before


def test_new_credentials_and_ports_of_the_embedded_cluster_are_taken_over(kubeconfig, monkeypatch) -> None:
    bootstrap()
    kubeconfig.write_text(KUBECONFIG.format(port=7000, token="two"))
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, http_port=8123))
    bootstrap()
    cluster = Cluster.objects.as_system().get()
    assert (cluster.server, cluster.apps_port) == ("http://127.0.0.1:7000", 8123)
    assert access.credentials_of(cluster).token == "two"


def test_the_cluster_that_the_portal_runs_in_is_registered_once_and_its_token_is_read_anew(
    kubeconfig, monkeypatch, tmp_path
) -> None:
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("one")
    (account / "ca.crt").write_text("")
    monkeypatch.setattr(incluster, "read", partial(incluster.read, folder=account))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(settings, "PORTAL_ORIGIN", "https://portal.example.org:8443")
    monkeypatch.setattr(settings, "PORTAL_APPS_DOMAIN", "apps.example.net")
    monkeypatch.setattr(settings, "ENVIRONMENT", replace(settings.ENVIRONMENT, cluster="in-cluster"))
    bootstrap()
    (account / "token").write_text("two")
    bootstrap()
    cluster = Cluster.objects.as_system().get()
    assert (cluster.name, cluster.server, cluster.trusted) == ("in-cluster", "https://10.0.0.1:443", True)
    assert (cluster.apps_domain, cluster.apps_scheme, cluster.apps_port) == ("apps.example.net", "https", 8443)
    assert access.credentials_of(cluster).token == "two"
    (account / "token").unlink()
    with pytest.raises(access.CredentialsUnusable, match="no account of a cluster"):
        access.credentials_of(cluster)


def test_a_given_password_is_not_printed(kubeconfig, monkeypatch) -> None:
    given = replace(settings.ENVIRONMENT, admin_password="chosen by the operator")
    monkeypatch.setattr(settings, "ENVIRONMENT", given)
    assert not [line for line in bootstrap() if "password" in line or "chosen" in line]
    assert Client().login(username="admin", password="chosen by the operator")


def test_what_an_administrator_took_away_does_not_come_back(kubeconfig) -> None:
    bootstrap()
    Size.objects.as_system().filter(name="gpu-1").delete()
    bootstrap()
    assert not Size.objects.as_system().filter(name="gpu-1").exists()


def test_without_a_cluster_yet_the_rest_is_made_and_the_cluster_follows(kubeconfig) -> None:
    text = kubeconfig.read_text()
    kubeconfig.unlink()
    assert any("no kubeconfig" in line for line in bootstrap())
    assert User.objects.as_system().get().username == "admin"
    kubeconfig.write_text(text)
    bootstrap()
    assert Queue.objects.as_system().get().name == "default"
