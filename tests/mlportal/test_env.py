"""Settings from the environment: what is read, and that each error names its variable."""

from pathlib import Path

import pytest

from mlportal import env
from mlportal.env import BadEnvironment
from mlportal.paths import LONGEST_SOCKET_NAME, LONGEST_SOCKET_PATH, Home


def test_nothing_set_gives_an_embedded_portal_on_loopback(tmp_path):
    found = env.read({"PORTAL_HOME": str(tmp_path)})
    assert found.origin == "http://127.0.0.1:8000"
    assert found.database_embedded
    assert found.redis_embedded
    assert found.cluster_embedded
    assert found.apps_domain == "apps.localhost"
    assert found.secret_file == tmp_path / "secrets" / "portal.json"
    assert found.kubeconfig == tmp_path / "localkube" / "kubeconfig"


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("PORTAL_HTTP_PORT", "http", "1 to 65535"),
        ("PORTAL_HTTP_PORT", "0", "1 to 65535"),
        ("PORTAL_HTTP_PORT", "65536", "1 to 65535"),
        ("PORTAL_HTTP_ADDRESS", "0.0.0.0", "HTTPS"),
        ("PORTAL_HTTP_ADDRESS", "192.0.2.7", "HTTPS"),
        ("PORTAL_HTTP_ADDRESS", "::", "HTTPS"),
        ("PORTAL_HTTP_ADDRESS", "localhost", "IP address"),
        ("PORTAL_SSH_PORT", "ssh", "0 to 65535"),
        ("PORTAL_SSH_PORT", "65536", "0 to 65535"),
        ("PORTAL_SSH_ADDRESS", "localhost", "IP address"),
        ("PORTAL_SSH_PUBLIC", "ssh.example.org:99999", "1 to 65535"),
        ("PORTAL_SSH_PUBLIC", "ssh://ssh.example.org", "ssh.example.org:22"),
        ("PORTAL_ORIGIN", "portal.example.org", "https://portal.example.org"),
        ("PORTAL_ORIGIN", "https://portal.example.org/sub", "https://portal.example.org"),
        ("PORTAL_ORIGIN", "https://portal.example.org:port", "PORTAL_ORIGIN"),
        ("PORTAL_ORIGIN", "http://portal.example.org", "plain HTTP"),
        ("PORTAL_TOOLS_IMAGE", "https://r.example/tools", "registry.example.org/mlportal/tools:1"),
        ("PORTAL_APPS_DOMAIN", "apps_x/..", "host name"),
        ("PORTAL_APPS_DOMAIN", "apps.example.org", "plain HTTP"),
        ("DATABASE_URL", "mysql://u@h/n", "postgresql://"),
        ("DATABASE_URL", "postgresql://u@h", "no database name"),
        ("DATABASE_URL", "postgresql://u@h:port/n", "DATABASE_URL"),
        ("DATABASE_URL", "postgresql://u@h/n?sslmod=require", "sslmod"),
        ("REDIS_URL", "http://h", "redis://"),
        ("PORTAL_CLUSTER", "/nowhere/kubeconfig", "kubeconfig"),
        ("PORTAL_SMTP_URL", "mail.example.org", "smtp://"),
        ("PORTAL_EGRESS_ALLOW", "10.0.0.0/99", "10.0.0.0/99"),
        ("PORTAL_LEASE_S", "0", "between 1 and"),
        ("PORTAL_DEBUG", "perhaps", "1 or 0"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name, value, part):
    with pytest.raises(BadEnvironment) as caught:
        env.read({name: value})
    assert name in str(caught.value)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("given", "public"),
    [
        ({}, ("127.0.0.1", 2222)),
        ({"PORTAL_ORIGIN": "https://portal.example.org", "PORTAL_SSH_PORT": "2022"}, ("portal.example.org", 2022)),
        ({"PORTAL_SSH_PUBLIC": "ssh.example.org"}, ("ssh.example.org", 2222)),
        ({"PORTAL_SSH_PUBLIC": "ssh.example.org:22"}, ("ssh.example.org", 22)),
        ({"PORTAL_SSH_PUBLIC": "[2001:db8::1]:22"}, ("2001:db8::1", 22)),
        ({"PORTAL_SSH_ADDRESS": "0.0.0.0", "PORTAL_SSH_PORT": "0"}, ("127.0.0.1", 0)),
    ],
)
def test_where_people_reach_the_entrance_by_ssh(given, public):
    found = env.read(given)
    assert found.ssh_public == public
    assert found.ssh_port_given is ("PORTAL_SSH_PORT" in given)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("PORTAL_HTTPPORT", "PORTAL_HTTP_PORT"),
        ("PORTAL_APP_DOMAIN", "PORTAL_APPS_DOMAIN"),
        ("PORTAL_LOG_DAY", "PORTAL_LOG_DAYS"),
        ("PORTAL_ORIGINS", "PORTAL_ORIGIN"),
        ("PORTAL_HTTP_PORT_", "PORTAL_HTTP_PORT"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_nearest_one(name, near):
    with pytest.raises(BadEnvironment) as caught:
        env.read({name: "8123"})
    said = str(caught.value)
    assert said.startswith(f"{name} is no setting") and f"nearest is {near}." in said
    assert said.endswith("(unknown_setting)") and "\n" not in said


def test_the_command_lines_own_variables_and_empty_ones_are_no_slips():
    env.read({"PORTAL_URL": "http://127.0.0.1", "PORTAL_TOKEN": "t", "PORTAL_PASSWORD": "p", "PORTAL_HTTPPORT": ""})


def links(service, *, host="10.96.7.7"):
    """What Kubernetes sets in the containers of a namespace that has this service (kubelet's envvars.FromServices)."""
    name, address = service.upper().replace("-", "_"), f"tcp://{host}:8000"
    each = {f"{name}_PORT_8000_TCP": address, f"{name}_PORT_8000_TCP_PROTO": "tcp"}
    each |= {f"{name}_PORT_8000_TCP_PORT": "8000", f"{name}_PORT_8000_TCP_ADDR": host}
    return {
        f"{name}_SERVICE_HOST": host,
        f"{name}_SERVICE_PORT": "8000",
        f"{name}_SERVICE_PORT_WEB_UI": "8000",
        f"{name}_PORT": address,
        **each,
    }


@pytest.mark.parametrize("service", ["portal", "portal-web", "portal-http", "portal-home", "portal-service-port"])
def test_what_kubernetes_says_of_services_called_so_is_no_setting(service):
    found = env.read({**links(service), **links("other"), "PORTAL_LOG_DAYS": "7"})
    assert (found.http_port, found.log_days) == (8000, 7)
    with pytest.raises(BadEnvironment, match="PORTAL_LOGDAYS is no setting"):
        env.read({**links(service), "PORTAL_LOGDAYS": "7"})


def test_a_setting_that_is_given_beside_such_a_service_holds():
    assert env.read({**links("portal-http"), "PORTAL_HTTP_PORT": "8123"}).http_port == 8123
    with pytest.raises(BadEnvironment, match="PORTAL_PORT is no setting"):
        env.read({**links("portal"), "PORTAL_PORT": "8123"})
    with pytest.raises(BadEnvironment, match="PORTAL_PORT is no setting"):
        env.read({"PORTAL_PORT": "tcp://10.96.7.7:8000"})


def test_instances_of_a_real_cluster_may_be_anywhere(tmp_path):
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("{}", encoding="utf-8")
    found = env.read({"PORTAL_APPS_DOMAIN": "apps.example.org", "PORTAL_CLUSTER": str(kubeconfig)})
    assert found.apps_domain == "apps.example.org"


@pytest.mark.parametrize(
    ("text", "origin", "port"),
    [
        ("https://portal.example.org/", "https://portal.example.org", 443),
        ("https://Portal.example.org:8443", "https://portal.example.org:8443", 8443),
        ("http://portal.localhost:18080", "http://portal.localhost:18080", 18080),
        ("http://[::1]:81", "http://[::1]:81", 81),
    ],
)
def test_a_given_address_is_the_portals_own(text, origin, port):
    found = env.read({"PORTAL_ORIGIN": text, "PORTAL_HTTP_PORT": "8123"})
    assert (found.origin, found.public_port) == (origin, port)


def test_the_cluster_that_the_portal_runs_in_needs_no_file():
    found = env.read({"PORTAL_CLUSTER": "in-cluster", "PORTAL_APPS_DOMAIN": "apps.example.org"})
    assert found.cluster == "in-cluster" and not found.cluster_embedded


def test_loopback_of_either_family_is_accepted():
    assert env.read({"PORTAL_HTTP_ADDRESS": "::1", "PORTAL_HTTP_PORT": "81"}).origin == "http://[::1]:81"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://portal:p%40ss@db.example.org:5433/portal?sslmode=require",
        "postgresql://portal@/portal?host=%2Frun%2Fpg&port=5432",
    ],
)
def test_a_database_url_survives_a_round_trip(url):
    assert env.parse_database_url(url).url() == url


def test_a_password_is_decoded():
    assert env.parse_database_url("postgres://u:a%2Fb@h/n").password == "a/b"


def test_the_image_of_the_tools_may_come_from_ones_own_registry():
    assert env.read({}).tools_image == "mlportal/tools:1"
    pinned = "r.example:5000/tools@sha256:" + "0" * 64
    assert env.read({"PORTAL_TOOLS_IMAGE": pinned}).tools_image == pinned


def test_egress_takes_networks_addresses_and_names():
    found = env.read({"PORTAL_EGRESS_ALLOW": "10.0.0.0/8, 127.0.0.1 hooks.example.org"})
    assert found.egress_allow == ("10.0.0.0/8", "127.0.0.1", "hooks.example.org")


def test_a_short_data_folder_holds_its_own_sockets():
    assert Home(root=Path("/srv/portal")).run == Path("/srv/portal/run")


def test_sockets_of_a_long_data_folder_are_elsewhere_and_each_folder_has_its_own(monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    first, second = Home(root=Path("/srv") / ("x" * 90)), Home(root=Path("/srv") / ("y" * 90))
    assert first.run != second.run
    assert len(str(first.run)) + 1 + LONGEST_SOCKET_NAME <= LONGEST_SOCKET_PATH
