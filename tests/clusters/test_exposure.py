"""How instances are reached, as an administrator chooses it: form, REST, the object's page, and what a check says."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.clusters import access, checks, examining, services
from apps.clusters.models import Cluster
from apps.core.errors import Invalid
from apps.core.models import AuditEntry
from kubekit.errors import PermissionDenied
from tests.clusters.probed import ProbedCluster
from tests.clusters.test_checks import by_code, carry_out
from tests.tenants import make

pytestmark = pytest.mark.django_db

GATEWAY = {"exposure": "httproute", "gateway_namespace": "infra", "gateway_name": "shared"}
SERVED = [{"type": "Accepted", "status": "True"}, {"type": "Programmed", "status": "True"}]


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(make.admin())
    return client


def change(client: Client, cluster: Cluster, **settings: Any) -> Any:
    return client.patch(f"/api/v1/clusters/{cluster.pk}", settings, content_type="application/json")


# --- choosing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["/clusters/new", "settings"])
def test_the_form_offers_all_three_and_says_what_becomes_of_running_instances(client: Client, address: str) -> None:
    cluster = make.cluster()
    page = client.get(address if address.startswith("/") else f"/clusters/{cluster.pk}/{address}").content.decode()
    assert '<option value="ingress" selected>' in page and '<option value="httproute">' in page
    assert '<option value="gateway">the portal&#x27;s own gateway</option>' in page
    for name in ("gateway_namespace", "gateway_name", "gateway_listener", "ingress_class"):
        assert f'data-field="{name}"' in page
    assert "each is reached in the new way at once" in page
    assert "clusters/form.js" in page, "it asks only what belongs to the choice"


def test_it_is_chosen_in_the_form_and_shown_on_the_page(client: Client) -> None:
    cluster = make.cluster()
    form = {"apps_domain": "apps.example.net", "apps_scheme": "https", "apps_port": "0", **GATEWAY}
    answer = client.post(f"/clusters/{cluster.pk}/settings", {**form, "gateway_listener": "web"})
    assert answer.status_code == 302, answer.content
    page = client.get(f"/clusters/{cluster.pk}").content.decode()
    assert "HTTPRoute (Gateway API), infra/shared web" in page
    entry = AuditEntry.objects.as_system().get(verb="cluster.update")
    assert entry.detail["exposure"] == ["ingress", "httproute"]


def test_rest_chooses_and_tells_administrators_alone(client: Client) -> None:
    cluster = make.cluster()
    answer = change(client, cluster, **GATEWAY, gateway_listener="web")
    assert answer.status_code == 200, answer.content
    told = ("exposure", "gateway_namespace", "gateway_name", "gateway_listener")
    assert [answer.json()[name] for name in told] == ["httproute", "infra", "shared", "web"]
    assert change(client, cluster, exposure="ingress").json()["exposure"] == "ingress"
    other = Client()
    other.force_login(make.user())
    shown = other.get(f"/api/v1/clusters/{cluster.pk}").json()
    assert [shown[name] for name in told] == [None] * 4


@pytest.mark.parametrize("embedded", [True, False])
def test_the_portals_own_gateway_needs_no_more_than_its_name(client: Client, embedded: bool) -> None:
    cluster = make.cluster()
    Cluster.objects.as_system().filter(pk=cluster.pk).update(embedded=embedded, ingress_class="nginx")
    assert change(client, cluster, exposure="gateway").json()["exposure"] == "gateway"
    page = client.get(f"/clusters/{cluster.pk}").content.decode()
    assert "the portal&#x27;s own gateway" in page and "nginx" not in page, "whose class nothing asks for"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"exposure": "httproute", "gateway_name": "shared"}, "gateway_namespace"),
        ({"exposure": "httproute", "gateway_namespace": "infra"}, "gateway_name"),
        ({**GATEWAY, "gateway_name": "a b"}, "gateway_name"),
        ({**GATEWAY, "gateway_namespace": "../x"}, "gateway_namespace"),
        ({**GATEWAY, "gateway_listener": "$(x)"}, "gateway_listener"),
        ({"exposure": "nodeport"}, "exposure"),
    ],
)
def test_what_no_route_could_name_is_refused_at_its_field(client: Client, settings: dict[str, str], field: str) -> None:
    cluster = make.cluster()
    answer = change(client, cluster, **settings)
    assert answer.status_code == 422
    assert [row["pointer"].strip("/") for row in answer.json()["errors"]] == [field]
    cluster.refresh_from_db()
    assert cluster.exposure == "ingress"


def test_one_setting_alone_is_judged_with_those_that_stand(client: Client) -> None:
    cluster = make.cluster()
    assert change(client, cluster, **GATEWAY).status_code == 200
    assert change(client, cluster, gateway_name="").status_code == 422
    assert change(client, cluster, gateway_name="another").status_code == 200


def test_the_embedded_cluster_says_that_it_knows_ingress_alone(client: Client) -> None:
    cluster = make.cluster()
    Cluster.objects.as_system().filter(pk=cluster.pk).update(embedded=True)
    answer = change(client, cluster, **GATEWAY)
    assert answer.status_code == 422
    assert "does not serve the Gateway API" in answer.json()["errors"][0]["detail"]
    with pytest.raises(Invalid):
        services.check_options({"apps_domain": "apps.localhost", **GATEWAY}, embedded=True)
    form = {"apps_domain": "apps.localhost", "apps_scheme": "http", "apps_port": "8000", **GATEWAY}
    page = client.post(f"/clusters/{cluster.pk}/settings", form)
    assert page.status_code == 422 and 'id="id_exposure-error"' in page.content.decode()


# --- the check ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ProbedCluster:
    fake = ProbedCluster()
    fake.gateway_api = ("v1",)
    accepted = {"conditions": [{"type": "Accepted", "status": "True"}]}
    fake.objects["GatewayClass", None, "envoy"] = {"metadata": {"name": "envoy"}, "status": accepted}
    fake.objects["Gateway", "infra", "shared"] = {
        "metadata": {"name": "shared", "namespace": "infra"},
        "spec": {"listeners": [{"name": "web", "protocol": "HTTPS", "port": 443, "allowedRoutes": {}}]},
        "status": {"conditions": SERVED},
    }
    monkeypatch.setattr(access, "connect", lambda cluster, *, any_version=False: fake)
    monkeypatch.setattr(examining, "PAUSE_S", 0.0)
    return fake


@pytest.fixture
def cluster() -> Cluster:
    made: Cluster = make.cluster()
    Cluster.objects.as_system().filter(pk=made.pk).update(**GATEWAY)
    made.refresh_from_db()
    return made


def test_the_gateway_and_its_listeners_are_lines_with_the_command_that_mends(
    client: Client, cluster: Cluster, server: ProbedCluster
) -> None:
    found = by_code(carry_out(cluster))
    assert found["gateway_good"]["result"] == found["gateway_parent_good"]["result"] == "good"
    assert found["gateway_listener_namespaces"]["result"] == "missing"
    page = client.get(f"/clusters/{cluster.pk}/check").content.decode()
    assert "Gateway infra/shared" in page and "Its listener for instances" in page
    assert "kubectl patch gateway shared -n infra" in page
    server.objects["Gateway", "infra", "shared"]["spec"]["listeners"][0]["allowedRoutes"] = {
        "namespaces": {"from": "All"}
    }
    assert by_code(carry_out(cluster))["gateway_listener_good"]["result"] == "good"
    del server.objects["Gateway", "infra", "shared"]
    absent = by_code(carry_out(cluster))
    assert "kubectl apply -f -" in absent["gateway_parent_absent"]["command"]
    assert "gateway_listener_good" not in absent


def test_who_may_not_read_gateways_is_told_so_and_the_check_goes_on(cluster: Cluster, server: ProbedCluster) -> None:
    server.denied.add(("get", "Gateway"))
    row = carry_out(cluster)
    (line,) = (line for line in row.lines if line["topic"] == "gateway_parent")
    assert (line["code"], line["result"]) == ("not_told", "unknown")
    assert by_code(row)["permission_optional"]["params"]["what"] == "gateways.gateway.networking.k8s.io"
    assert "probes_no_image" in by_code(row)


def test_without_the_gateway_api_that_is_what_is_missing(cluster: Cluster, server: ProbedCluster) -> None:
    server.gateway_api = ()
    row = carry_out(cluster)
    assert by_code(row)["gateway_none"]["result"] == "missing"
    assert not [line for line in row.lines if line["topic"] in ("gateway_parent", "gateway_listener")]


def test_with_the_portals_own_gateway_neither_way_must_be_there(server: ProbedCluster) -> None:
    cluster = make.cluster()
    Cluster.objects.as_system().filter(pk=cluster.pk).update(exposure="gateway")
    cluster.refresh_from_db()
    server.gateway_api = ()
    for key in [key for key in server.objects if key[0] == "IngressClass"]:
        del server.objects[key]
    row = carry_out(cluster)
    assert not [line for line in row.lines if line["topic"] in ("gateway", "ingress") and line["result"] == "missing"]
    assert ("get", "Gateway") not in server.calls


def test_by_ingress_no_gateway_is_looked_for(server: ProbedCluster) -> None:
    row = carry_out(make.cluster())
    assert not [line for line in row.lines if line["topic"] in ("gateway_parent", "gateway_listener")]
    assert ("get", "Gateway") not in server.calls


@pytest.mark.parametrize(
    ("exposure", "kind", "resource", "needed"),
    [
        ("ingress", "Ingress", "ingresses.networking.k8s.io", True),
        ("ingress", "HTTPRoute", "httproutes.gateway.networking.k8s.io", False),
        ("httproute", "HTTPRoute", "httproutes.gateway.networking.k8s.io", True),
        ("httproute", "Ingress", "ingresses.networking.k8s.io", False),
        ("gateway", "Ingress", "ingresses.networking.k8s.io", False),
        ("gateway", "HTTPRoute", "httproutes.gateway.networking.k8s.io", False),
    ],
)
def test_only_the_routes_that_the_cluster_uses_must_be_allowed(
    server: ProbedCluster, exposure: str, kind: str, resource: str, needed: bool
) -> None:
    cluster = make.cluster()
    Cluster.objects.as_system().filter(pk=cluster.pk).update(**{**GATEWAY, "exposure": exposure})
    cluster.refresh_from_db()
    server.denied.add(("create", kind))
    line = by_code(carry_out(cluster))["permission_missing" if needed else "permission_unused"]
    assert (line["params"]["what"], line["result"]) == (resource, "missing" if needed else "note")
    assert bool(cluster.reason) == needed
    fresh = make.cluster(name="fresh")
    Cluster.objects.as_system().filter(pk=fresh.pk).update(**{**GATEWAY, "exposure": exposure})
    checks.note_denied(fresh.pk, PermissionDenied("no", verb="create", resource=resource, status=403))
    fresh.refresh_from_db()
    assert bool(fresh.reason) == needed
