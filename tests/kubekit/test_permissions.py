"""One list says what the account needs: for the check page and for the ClusterRole of an installation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubekit.kinds import KINDS
from kubekit.permissions import NEEDED, Permission, grant, rules

ROOT = Path(__file__).parents[2]


def test_the_rules_of_a_cluster_role_are_the_list() -> None:
    assert len(rules()) == len(NEEDED)
    assert {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "verbs": ["patch"]} in rules()
    assert {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]} in rules()
    resources = [(entry["apiGroups"][0], entry["resources"][0]) for entry in rules()]
    assert len(set(resources)) == len(resources), "a resource stands once"


def test_nothing_in_it_reaches_further_than_the_portal_does() -> None:
    for rule in rules():
        assert "*" not in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
        assert not {"impersonate", "bind", "escalate", "deletecollection"} & set(rule["verbs"])
    resources = {rule["resources"][0] for rule in rules()}
    assert not resources & {"nodes/proxy", "pods/attach", "serviceaccounts/token", "clusterroles"}


def test_what_is_applied_may_also_be_created() -> None:
    for entry in NEEDED:
        if "patch" in entry.verbs and not entry.subresource:
            assert "create" in entry.verbs, entry


def test_every_kind_that_the_apps_name_in_a_request_is_in_the_list_with_that_verb() -> None:
    verbs = {"get": "get", "list": "list", "delete": "delete", "patch_merge": "patch"}
    call = re.compile(rf"\.({'|'.join(verbs)})\(\s*\"([A-Z][A-Za-z]+)\"")
    allowed = {(entry.kind, verb) for entry in NEEDED for verb in entry.verbs}
    asked = {
        (kind, verbs[method])
        for path in (ROOT / "apps").rglob("*.py")
        for method, kind in call.findall(path.read_text(encoding="utf-8"))
        if kind in KINDS
    }
    assert ("Pod", "delete") in asked
    assert asked - allowed == set()


@pytest.mark.parametrize(
    ("account", "subject"),
    [
        ("system:serviceaccount:portal:robot", "--serviceaccount=portal:robot"),
        ("jane", "--user=jane"),
        ("", "--user=NAME"),
    ],
)
def test_a_missing_permission_comes_with_the_commands_that_grant_it(account: str, subject: str) -> None:
    text = grant(Permission(kind="Ingress", verbs=("get", "patch")), account)
    assert text == (
        "kubectl create clusterrole mlportal-ingresses.networking.k8s.io --verb=get,patch "
        "--resource=ingresses.networking.k8s.io && kubectl create clusterrolebinding "
        f"mlportal-ingresses.networking.k8s.io --clusterrole=mlportal-ingresses.networking.k8s.io {subject}"
    )
