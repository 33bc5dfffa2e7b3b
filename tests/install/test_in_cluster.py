"""J1 with the portal inside the cluster: through its Ingress, and again through its HTTPRoute.

KUBECONFIG=… CLUSTER_INGRESS=http://127.0.0.1:18080 python -m pytest -m cluster tests/install
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.install.installing import HOST, PORT, Installation, gateway, kubectl, objects, patient
from tests.install.visiting import Visitor

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("install")]


def written(name: str) -> bytes:
    content = {"type": "file", "format": "text", "content": f"print('{name}')"}
    return json.dumps(content).encode()


#: Of the Gateway: the portal's own namespace, and those of queues.
QUEUES = {
    "from": "Selector",
    "selector": {
        "matchExpressions": [
            {"key": "app.kubernetes.io/part-of", "operator": "In", "values": ["mlportal"]},
        ]
    },
}


def first_day(portal: Installation, name: str, *, route: str = "ingress") -> None:
    """Sign in, create, work, stop, start: the key of before is dead, the home is there."""
    cookie = portal.sign_in()
    home = portal.fetch("/", headers={"Cookie": cookie})
    assert home.status == 200
    style = re.search(rb'href="(/static/[^"]+\.css)"', home.body)
    assert style is not None
    assert portal.fetch(style[1].decode()).headers["Cache-Control"].startswith("max-age=315360000"), "hashed names"

    wanted = {"name": name, "image": "jupyter", "size": "small", "queue": "default"}
    with portal.signals(cookie) as signals:
        made = portal.api("POST", "instances", wanted)
        assert made.status == 201, made.body
        instance = made.json["id"]
        told = (json.loads(signals.recv(timeout=90))["pk"] for _ in range(50))
        assert any(pk == instance for pk in told), "pages follow by web socket"
    host = urlsplit(portal.until(instance, "running")["url"]).netloc
    assert re.fullmatch(rf"i-[0-9a-f]+\.apps\.localhost:{PORT}", host)
    mine = f"mlportal.io/id={instance}"
    assert len(objects(route, "-A", "-l", mine)) == 1
    assert not objects({"ingress": "httproute", "httproute": "ingress"}[route], "-A", "-l", mine)
    assert name.encode() in portal.fetch(f"/instances/{instance}", headers={"Cookie": cookie}).body

    key = portal.api("GET", f"instances/{instance}/key").json["key"]
    assert patient(lambda: portal.at(host, "/api/status", key=key).status == 200)
    assert portal.at(host, "/api/status", key="wrong").status == 403
    assert portal.at(host, "/lab").status == 403
    assert portal.at(host, f"/api/contents/{name}.py", key=key, method="PUT", body=written(name)).status == 201

    assert portal.api("POST", f"instances/{instance}/stop").status in {200, 202}
    portal.until(instance, "stopped")
    assert patient(lambda: portal.at(host, "/api/status", key=key).status == 404), "the route goes first"
    assert portal.api("POST", f"instances/{instance}/start").status in {200, 202}
    portal.until(instance, "running")
    new = portal.api("GET", f"instances/{instance}/key").json["key"]
    assert new != key
    assert patient(lambda: portal.at(host, "/api/status", key=new).status == 200)
    assert portal.at(host, "/api/status", key=key).status == 403
    assert name in portal.at(host, f"/api/contents/{name}.py?content=1", key=new).json["content"]
    assert portal.api("DELETE", f"instances/{instance}").status in {200, 202, 204}


def test_a_first_day_through_the_ingress(installation: Installation) -> None:
    assert patient(lambda: installation.fetch("/readyz").status == 200)
    first_day(installation, "through-ingress")


def test_a_first_day_through_the_httproute(installation: Installation) -> None:
    kubectl("-n", installation.namespace, "delete", "ingress", "mlportal")
    assert patient(lambda: installation.fetch("/readyz").status == 404), "nothing else leads to the portal"
    gateway(installation.namespace, namespaces=QUEUES)
    route: dict[str, Any] = yaml.safe_load((installation.folder / "httproute" / "httproute.yaml").read_text())
    route["spec"]["parentRefs"] = [{"name": "gateway"}]
    route["spec"]["hostnames"] = [HOST]
    kubectl("-n", installation.namespace, "apply", "-f", "-", given=json.dumps(route))
    assert patient(lambda: installation.fetch("/readyz").status == 200)
    (cluster,) = installation.api("GET", "clusters").json["items"]
    chosen = {"exposure": "httproute", "gateway_namespace": installation.namespace, "gateway_name": "gateway"}
    assert installation.api("PATCH", f"clusters/{cluster['id']}", chosen).status == 200
    first_day(installation, "through-httproute", route="httproute")


def test_pods_are_restricted_and_hold_what_they_should(installation: Installation) -> None:
    namespace = installation.namespace
    labels = json.loads(kubectl("get", "namespace", namespace, "-o", "json"))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    said = installation.run("web", "sh", "-c", "id -u; touch /app/x 2>&1; ls -A /app/.portal")
    assert said.split()[0] == "1000" and "Read-only file system" in said
    assert not {"secrets", "pg", "redis", "localkube"} & set(said.split())
    # Only the entrance reaches the web pods, and nobody but the programs the database.
    probe = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)"
    ask = ("python", "-c", probe)
    installation.run("worker", *ask, "mlportal-postgres", "5432")
    with pytest.raises(AssertionError, match=r"(?i)timed out|refused|unreachable"):
        installation.run("worker", *ask, "mlportal", "80")


def test_ssh_goes_straight_to_the_pod_where_its_network_policy_lets_the_entrance_in(
    installation: Installation, tmp_path: Path
) -> None:
    (cluster,) = installation.api("GET", "clusters").json["items"]
    chosen = {"ingress_namespaces": [*cluster["ingress_namespaces"], installation.namespace]}
    assert installation.api("PATCH", f"clusters/{cluster['id']}", chosen).status == 200
    ours = ("networkpolicies", "-A", "-l", f"mlportal.io/install={installation.install_id()}")
    assert patient(lambda: installation.namespace in json.dumps([one["spec"] for one in objects(*ours)]))
    instance = installation.launch("by-ssh")
    visitor = Visitor.of(installation, instance, tmp_path)
    said = visitor.ssh("id -un; echo $SSH_CONNECTION; exit 7", text=True)
    assert said.returncode == 7, said.stderr
    login, connection = said.stdout.split("\n", 1)
    pods = objects("pods", "-n", installation.namespace, "-l", "app.kubernetes.io/component=sshgateway")
    assert login == "user"
    assert connection.split()[0] in {pod["status"]["podIP"] for pod in pods}, "it did not go around by the API server"
    content = os.urandom(3_000_000)
    assert visitor.ssh("cat > copy", input=content).returncode == 0
    assert visitor.ssh("cat copy").stdout == content
    assert installation.api("DELETE", f"instances/{instance}").status in {200, 202, 204}
