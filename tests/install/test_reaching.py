"""An instance is reached by Ingress, by HTTPRoute and by the portal's own gateway alike: the same steps on a real
cluster, web socket included. The gateway runs here, outside the cluster, and goes through the API server.

KUBECONFIG=… CLUSTER_INGRESS=http://127.0.0.1:18080 python -m pytest -m cluster tests/install/test_reaching.py
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from websockets.sync.client import connect

from apps.catalog.models import Image, Purpose, Size
from apps.clusters import examining
from apps.clusters import services as clusters
from apps.clusters.models import Cluster
from apps.core import reconciling
from apps.core.actors import Actor
from apps.instances import entering, services
from apps.instances.models import Instance
from apps.instances.spec import host_of
from apps.instances.states import InstanceState
from apps.tenants import quotas
from apps.tenants.models import Queue
from apps.tenants.quotas import Quota
from apps.tenants.states import QueueState
from kubekit import client
from tests.gateway.running import running
from tests.install.account import Account, look, until
from tests.install.installing import INGRESS, PORT, gateway, objects, patient
from tests.journeys.portal import Answer, fetch
from tests.tenants import make

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True), pytest.mark.xdist_group("install")]

S = InstanceState
WRITES = {"PATCH", "POST", "PUT", "DELETE"}


@dataclass
class Site:
    """A queue on the cluster with an instance, and what the portal has sent for it."""

    cluster: Cluster
    actor: Actor
    queue: Queue
    sent: list[tuple[str, str]]
    own_gateway: int
    """Its port."""
    _instance: Instance | None = None

    @property
    def instance(self) -> Instance:
        """The one that was asked for by `begin`."""
        assert self._instance is not None
        return self._instance

    def begin(self) -> None:
        """Ask for the instance; its volume stands, nothing else is written yet."""
        self._instance = services.create(actor=self.actor, queue=self.queue.name, image="jupyter", size="small")
        reconciling.reconcile_one("volume", self._instance.home_id)
        self.sent.clear()

    def routes(self) -> list[str]:
        """The kinds of routes that the queue's namespace has."""
        return [one["kind"] for one in objects("ingresses,httproutes", "-n", self.queue.namespace)]

    @property
    def entrance(self) -> str:
        """Where requests for instances go: the cluster's own entrance, or the portal's gateway."""
        self.cluster.refresh_from_db()
        return f"http://127.0.0.1:{self.own_gateway}" if self.cluster.exposure == "gateway" else INGRESS

    def at(self, path: str, *, key: str = "", method: str = "GET", form: dict[str, str] | None = None) -> Answer:
        """A request to the instance's host, through the cluster's entrance."""
        headers = {"Host": f"{host_of(self.instance)}:{PORT}"}
        headers |= {"Authorization": f"token {key}"} if key else {}
        return fetch(
            f"{self.entrance}{path}", method=method, headers=headers, body=urlencode(form).encode() if form else None
        )

    def writes(self) -> list[tuple[str, str]]:
        """What was written since the last time, as method and resource."""
        found = [(method, path.split("/")[-2]) for method, path in self.sent if method in WRITES]
        self.sent.clear()
        return found

    def said_in_a_terminal(self, typed: str, awaited: str) -> bool:
        """Whether a terminal of JupyterLab, over its web socket, answers what was typed."""
        key = self.instance.key.reveal()
        terminal = self.at("/api/terminals", key=key, method="POST").json["name"]
        host = f"{host_of(self.instance)}:{PORT}"
        link = socket.create_connection(
            (urlsplit(self.entrance).hostname, urlsplit(self.entrance).port or 80), timeout=30
        )
        address, headers = f"ws://{host}/terminals/websocket/{terminal}", {"Authorization": f"token {key}"}
        with connect(address, sock=link, additional_headers=headers, open_timeout=60) as shell:
            shell.send(json.dumps(["stdin", f"{typed}\r"]))
            heard = ""
            while awaited not in heard:
                kind, *rest = json.loads(shell.recv(timeout=90))
                heard += str(rest[0]) if kind == "stdout" else ""
        return True


@pytest.fixture
def site(account: Account, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A queue that stands, a Gateway, and a note of every request from now on."""
    gateway(account.name, namespaces={"from": "All"})
    clusters.update(actor=make.actor(make.admin()), cluster=cluster, apps_port=PORT)
    quota = Quota(cpu_millis=2000, memory_bytes=4 * make.GIB, storage_bytes=50 * make.GIB)
    queue: Queue = quotas.create(
        actor=make.actor(make.admin()), name="reached", team=make.team(), cluster=cluster, quota=quota
    )
    look("queue", queue, QueueState.READY)
    Image.objects.create(name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV)
    Size.objects.create(name="small", cpu_millis=100, memory_bytes=make.GIB // 2)
    sent: list[tuple[str, str]] = []
    send = client.Cluster._send

    def _send(server: Any, method: str, url: str, headers: Any, body: Any) -> Any:
        sent.append((method, urlsplit(url).path))
        return send(server, method, url, headers, body)

    monkeypatch.setattr(client.Cluster, "_send", _send)
    actor = make.actor(make.user(role_in=queue.team))
    with running() as port:
        yield Site(cluster, actor, queue, sent, port)


def switch(site: Site, exposure: str, *, gateway_in: str) -> None:
    """As an administrator does it on the cluster's page."""
    clusters.update(
        actor=make.actor(make.admin()), cluster=site.cluster, exposure=exposure,
        gateway_namespace=gateway_in, gateway_name="gateway", gateway_listener="web",
    )  # fmt: skip


def one_round(site: Site) -> None:
    """What one worker does at one hint."""
    assert reconciling.reconcile_one("instance", site.instance.pk)
    site.instance.refresh_from_db()


WAYS = [("ingress", "Ingress"), ("httproute", "HTTPRoute"), ("gateway", "")]


@pytest.mark.parametrize(("exposure", "kind"), WAYS)
def test_enter_work_in_a_terminal_stop_and_start_again(site: Site, account: Account, exposure: str, kind: str) -> None:
    route = {"Ingress": ["ingresses"], "HTTPRoute": ["httproutes"], "": []}[kind]
    switch(site, exposure, gateway_in=account.name)
    lines = examining.Examination(
        server=client.Cluster(account.credentials()), cluster=site.cluster, spec=None, beat=lambda: None
    ).lines()
    assert not [line for line in lines if line.topic.startswith(("gateway", "ingress")) and line.result == "missing"]
    site.begin()
    one_round(site)
    assert [what for _method, what in site.writes()] == ["secrets", "services", *route, "statefulsets"]
    look("instance", site.instance, S.RUNNING)
    assert site.routes() == ([kind] if kind else [])

    key = site.instance.key.reveal()
    assert patient(lambda: site.at("/api/status", key=key).status == 200)
    assert site.at("/api/status", key="wrong").status == 403
    assert site.at("/lab").status == 403
    way = entering.ticket(actor=site.actor, instance=site.instance)
    assert urlsplit(way.url).netloc == f"{host_of(site.instance)}:{PORT}"
    entered = site.at(urlsplit(way.url).path, method="POST", form={"ticket": way.ticket})
    assert entered.status == 303, entered.body
    assert "__Host-mlportal=" in {name.lower(): value for name, value in entered.headers.items()}["set-cookie"]
    assert site.said_in_a_terminal("echo written-$((6*7))", "written-42")

    services.stop(actor=site.actor, instance=site.instance)
    site.sent.clear()
    one_round(site)
    stopped = [("DELETE", what) for what in route]
    assert [*stopped, ("PATCH", site.instance.object_name)] == site.writes()[:2], "the route goes first"
    assert site.routes() == []
    assert patient(lambda: site.at("/api/status", key=key).status == 404)
    look("instance", site.instance, S.STOPPED)

    services.start(actor=site.actor, instance=site.instance)
    site.instance.refresh_from_db()
    site.sent.clear()
    one_round(site)
    assert [what for _method, what in site.writes()] == ["secrets", *route, "statefulsets"]
    look("instance", site.instance, S.RUNNING)
    new = site.instance.key.reveal()
    assert patient(lambda: site.at("/api/status", key=new).status == 200)
    assert site.at("/api/status", key=key).status == 403


def test_the_kind_of_route_is_changed_under_a_running_instance(site: Site, account: Account) -> None:
    site.begin()
    look("instance", site.instance, S.RUNNING)
    key = site.instance.key.reveal()
    assert patient(lambda: site.at("/api/status", key=key).status == 200)
    for exposure, kind in (("httproute", "HTTPRoute"), ("gateway", ""), ("ingress", "Ingress")):
        switch(site, exposure, gateway_in=account.name)
        wanted = [kind] if kind else []
        until("the new route alone", lambda wanted=wanted: one_round(site) or site.routes() == wanted, seconds=90)
        assert site.instance.state == S.RUNNING
        assert patient(lambda: site.at("/api/status", key=key).status == 200)
        assert site.said_in_a_terminal("echo still-$((6*7))", "still-42")
