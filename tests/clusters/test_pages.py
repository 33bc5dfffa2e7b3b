"""Registering a cluster and the pages of the fleet."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.test import Client
from django.utils import timezone

from apps.clusters import access, contact, services, watcher
from apps.clusters.models import Cluster, Node
from apps.clusters.states import ClusterState
from apps.core import egress
from apps.core.errors import Conflict, Forbidden, Invalid
from apps.core.models import AuditEntry
from kubekit.errors import Unauthorized, Unreachable
from tests.tenants import make

pytestmark = pytest.mark.django_db

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {user}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
"""
TOKEN = '{token: "canary-token"}'
LOCAL = KUBECONFIG.format(server="https://127.0.0.1:6443", user=TOKEN)


@pytest.fixture
def admin():
    return make.admin()


@pytest.fixture
def client(admin) -> Client:
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def allowed(settings) -> None:
    settings.PORTAL_EGRESS_ALLOW = ("127.0.0.0/8",)


def register(admin, text: str = LOCAL, **more: object) -> Cluster:
    given = {"name": "far", "apps_domain": "apps.example.net", "apps_scheme": "https", **more}
    return services.register(actor=make.actor(admin), kubeconfig=text, **given)  # type: ignore[arg-type]


def test_a_pasted_kubeconfig_registers_a_cluster_and_its_secret_stays_inside(client: Client, allowed) -> None:
    form = {"name": "far", "kubeconfig": LOCAL, "apps_domain": "apps.example.net", "apps_scheme": "https"}
    form |= {"apps_port": "0", "ingress_namespaces": "ingress-nginx traefik", "exposure": "ingress"}
    answer = client.post("/clusters/new", form)
    cluster = Cluster.objects.as_system().get()
    assert answer["Location"] == f"/clusters/{cluster.pk}"
    assert (cluster.state, cluster.ingress_namespaces) == ("pending", ["ingress-nginx", "traefik"])
    assert access.credentials_of(cluster).token == "canary-token"
    for path in ("/clusters", f"/clusters/{cluster.pk}", f"/clusters/{cluster.pk}/history", "/audit"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "canary" not in answer.content.decode(), path
    for path in (f"/clusters/{cluster.pk}/settings", f"/clusters/{cluster.pk}/credentials"):
        assert "canary" not in client.get(path).content.decode()
    assert "canary" not in str(list(AuditEntry.objects.as_system().values()))
    assert "canary" not in str(list(Cluster.objects.as_system().values()))


@pytest.mark.parametrize(
    ("user", "code"),
    [
        ("{exec: {command: touch, args: [/tmp/x], apiVersion: client.authentication.k8s.io/v1}}", "kubeconfig_exec"),
        ("{tokenFile: /etc/passwd}", "kubeconfig_token_file"),
        ("{client-certificate: /etc/passwd, client-key: /etc/shadow}", "kubeconfig_certificate_file"),
        ("{auth-provider: {name: gcp}}", "kubeconfig_auth_provider"),
        ("{}", "kubeconfig_no_login"),
    ],
)
def test_a_kubeconfig_that_could_act_is_refused_with_a_code(admin, user: str, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        register(admin, KUBECONFIG.format(server="https://203.0.113.5", user=user))
    assert refused.value.code == code
    assert list(refused.value.errors) == ["kubeconfig"]
    assert not Cluster.objects.as_system().exists()


def test_an_internal_server_needs_the_operators_allow_list(admin) -> None:
    with pytest.raises(Invalid) as refused:
        register(admin)
    assert refused.value.code == "address_internal"
    assert "PORTAL_EGRESS_ALLOW" in str(refused.value.next)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("apps_domain", "not a domain"),
        ("apps_scheme", "http"),
        ("apps_port", 70000),
        ("exposure", "nodeport"),
        ("ingress_class", "A B"),
        ("ingress_namespaces", ["kube-system", "../x"]),
    ],
)
def test_settings_that_could_not_work_are_refused_at_their_field(admin, allowed, option: str, value: object) -> None:
    with pytest.raises(Invalid) as refused:
        register(admin, **{option: value})
    assert list(refused.value.errors) == [option]


def resolving_to(monkeypatch, *addresses: str) -> None:
    """Every name leads there."""
    found = [(2, 1, 6, "", (address, 443)) for address in addresses]
    monkeypatch.setattr(egress.socket, "getaddrinfo", lambda *_args, **_more: found)
    monkeypatch.setattr(access, "_checked", {})


def test_a_name_that_leads_inside_after_registration_is_refused_and_the_cluster_says_so(admin, monkeypatch) -> None:
    text = KUBECONFIG.format(server="https://kube.example.net", user=TOKEN)
    resolving_to(monkeypatch, "203.0.114.5")
    cluster = register(admin, text)
    assert access.connect(cluster)
    resolving_to(monkeypatch, "203.0.114.5", "169.254.169.254")
    with pytest.raises(access.AddressRefused) as refused:
        access.connect(cluster)
    assert "PORTAL_EGRESS_ALLOW" in refused.value.message
    monkeypatch.setattr(watcher, "close_old_connections", lambda: None)
    assert watcher._clusters() == {}
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason_code) == (ClusterState.UNREACHABLE, "cluster_address")
    resolving_to(monkeypatch, "203.0.114.5")
    assert access.connect(cluster)


def test_connections_are_pinned_to_what_was_checked_so_that_a_name_cannot_lead_elsewhere_in_between(
    admin, monkeypatch
) -> None:
    text = KUBECONFIG.format(server="https://kube.example.net", user=TOKEN)
    resolving_to(monkeypatch, "203.0.114.7", "203.0.114.5")
    cluster = register(admin, text)
    first = access.connect(cluster)
    assert first.credentials.addresses == ("203.0.114.5", "203.0.114.7")
    assert access.credentials_of(cluster).addresses == first.credentials.addresses
    resolving_to(monkeypatch, "203.0.114.5", "203.0.114.7")
    assert access.connect(cluster) is first, "the order of a name server's answers says nothing"
    resolving_to(monkeypatch, "203.0.114.9")
    assert access.connect(cluster).credentials.addresses == ("203.0.114.9",)
    assert access.stored(cluster).addresses == (), "nothing of it is stored"


def test_a_name_that_nobody_resolves_now_is_silence_and_never_left_to_the_connection(admin, monkeypatch) -> None:
    def nobody(*_args: object, **_more: object) -> None:
        raise OSError("no name server")

    text = KUBECONFIG.format(server="https://kube.example.net", user=TOKEN)
    resolving_to(monkeypatch, "203.0.114.5")
    cluster = register(admin, text)
    known = access.connect(cluster)
    monkeypatch.setattr(egress.socket, "getaddrinfo", nobody)
    monkeypatch.setattr(access, "_checked", {"https://kube.example.net": (-1e9, ("203.0.114.5",))})
    assert access.connect(cluster) is known, "what was good when it was last heard"
    monkeypatch.setattr(access, "_checked", {})
    with pytest.raises(Unreachable):
        access.connect(cluster)


def test_what_the_operator_of_the_machine_gave_may_be_inside(admin, monkeypatch) -> None:
    resolving_to(monkeypatch, "127.0.0.1")
    assert access.connect(register(admin, trusted=True))
    assert access.connect(register(admin, name="local", embedded=True, trusted=True))
    later = make.cluster(credentials=access.pack(services.read_kubeconfig(LOCAL, trusted=True)), trusted=False)
    later.refresh_from_db()
    with pytest.raises(access.AddressRefused):
        access.connect(later)
    services.replace_credentials(actor=make.actor(admin), cluster=later, kubeconfig=LOCAL, trusted=True)
    assert access.connect(later)


def test_only_administrators_see_and_change_the_fleet(admin, allowed) -> None:
    cluster = register(admin)
    user = make.user()
    client = Client()
    client.force_login(user)
    for path in ("/clusters", "/clusters/new", f"/clusters/{cluster.pk}", f"/clusters/{cluster.pk}/check"):
        assert client.get(path).status_code == 403, path
    for act in (services.remove, services.update):
        with pytest.raises(Forbidden):
            act(actor=make.actor(user), cluster=cluster)


def test_a_cluster_with_queues_is_not_removed_and_a_removed_one_keeps_no_credentials(admin, allowed) -> None:
    cluster = register(admin)
    queue = make.queue(on=cluster)
    with pytest.raises(Conflict) as refused:
        services.remove(actor=make.actor(admin), cluster=cluster)
    assert queue.name in str(refused.value.detail)
    queue.state = "deleted"
    queue.save()
    services.remove(actor=make.actor(admin), cluster=cluster)
    assert (cluster.state, bool(cluster.credentials)) == (ClusterState.REMOVED, False)
    with pytest.raises(Conflict):
        access.connect(cluster)
    assert register(admin).pk != cluster.pk


def test_clients_are_shared_until_the_credentials_change(admin, allowed) -> None:
    cluster = register(admin)
    first = access.connect(cluster)
    assert access.connect(Cluster.objects.as_system().get()) is first
    services.replace_credentials(actor=make.actor(admin), cluster=cluster, kubeconfig=LOCAL.replace("canary", "second"))
    second = access.connect(cluster)
    assert second is not first
    assert second.credentials.token == "second-token"


def test_a_wrong_secret_file_breaks_no_page_and_new_credentials_mend_it(
    client: Client, admin, allowed, settings, monkeypatch
) -> None:
    monkeypatch.setattr(watcher, "close_old_connections", lambda: None)
    cluster = register(admin)
    make.queue(on=cluster)
    settings.PORTAL_ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)
    for path in ("/clusters", "/queues", f"/clusters/{cluster.pk}"):
        assert client.get(path).status_code == 200
    assert watcher._clusters() == {}
    page = client.get(f"/clusters/{cluster.pk}").content.decode()
    assert "does not fit its database" in page
    services.replace_credentials(actor=make.actor(admin), cluster=cluster, kubeconfig=LOCAL)
    assert list(watcher._clusters()) == [cluster.pk]


def test_contact_moves_the_state_with_a_reason_and_writes_the_audit_log() -> None:
    cluster = make.cluster(state=ClusterState.PENDING)
    contact.note_answer(cluster.pk, version="v1.36.0")
    contact.note_failure(cluster.pk, Unreachable("refused"))
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason_code, cluster.version) == ("unreachable", "cluster_unreachable", "v1.36.0")
    contact.note_failure(cluster.pk, Unauthorized("no"))
    cluster.refresh_from_db()
    assert cluster.reason_code == "cluster_unauthorized"
    contact.note_answer(cluster.pk)
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason, cluster.version) == ("connected", None, "v1.36.0")
    verbs = list(AuditEntry.objects.as_system().order_by("pk").values_list("verb", flat=True))
    assert verbs == ["cluster.connected", "cluster.unreachable", "cluster.connected"]


def test_a_cluster_that_goes_away_is_said_once_in_the_log(caplog) -> None:
    cluster = make.cluster()
    for _ in range(3):
        contact.note_failure(cluster.pk, Unreachable("refused"))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"the cluster {cluster.name} does not answer: refused"
    ]


def test_a_sign_of_life_is_one_statement_and_mends_a_state_that_is_behind(django_assert_num_queries) -> None:
    cluster = make.cluster()
    with django_assert_num_queries(1):
        contact.note_alive(cluster.pk)
    cluster.refresh_from_db()
    assert cluster.last_contact_at is not None
    contact.note_failure(cluster.pk, Unreachable("refused"))
    contact.note_alive(cluster.pk)
    cluster.refresh_from_db()
    assert (cluster.state, cluster.reason) == ("connected", None)


def test_the_fleet_shows_nodes_and_sums(client: Client) -> None:
    cluster = make.cluster()
    for name, ready in (("a", True), ("b", True), ("c", False)):
        Node.objects.create(
            cluster=cluster,
            name=name,
            ready=ready,
            seen_at=timezone.now(),
            allocatable={"cpu_millis": 4000, "memory_bytes": 8 << 30, "nvidia.com/gpu": 1},
            requested={"cpu_millis": 1500},
            labels={"localkube.io/limits": "soft" if name == "c" else "hard"},
        )
    page = client.get("/clusters").content.decode()
    assert "3 CPU / 8 CPU" in page
    assert "2 / 3" in page
    page = client.get(f"/clusters/{cluster.pk}").content.decode()
    assert "not ready" in page
    assert page.count("soft limit") == 1
