"""The client against a scripted server that answers with the bodies of a real one."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kubekit.client import Cluster
from kubekit.credentials import Credentials
from kubekit.errors import (
    AlreadyExists,
    BadAnswer,
    BadRequest,
    Conflict,
    Gone,
    KubeError,
    NotFound,
    NotImplementedByCluster,
    ServerTimeout,
    SpecError,
    TooManyRequests,
    Unreachable,
)
from tests.kubekit.fakes import FakeApi, reset, serving, silent, status_body
from tests.kubekit.samples import raw_pod

POD = "/api/v1/namespaces/ns/pods/p"
PODS = "/api/v1/namespaces/ns/pods"


def pod(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", **metadata}, "spec": {}}


def test_apply_is_a_server_side_apply_by_one_manager(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"PATCH {POD}", pod(uid="u"))
    assert cluster.apply(pod())["metadata"]["uid"] == "u"
    asked = api.last()
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
    assert asked.query == {"fieldManager": "mlportal", "force": "true"}
    assert asked.body == pod()
    assert asked.headers["Authorization"] == "Bearer t0ken"


def test_a_dry_run_says_so_and_an_unforced_apply_too(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"PATCH {POD}", pod())
    cluster.apply(pod(), dry_run=True, force=False)
    assert api.last().query == {"fieldManager": "mlportal", "force": "false", "dryRun": "All"}


def test_cluster_wide_objects_have_a_path_without_a_namespace(api: FakeApi, cluster: Cluster) -> None:
    api.answer("PATCH /api/v1/namespaces/n", {"kind": "Namespace"})
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    assert api.last().path == "/api/v1/namespaces/n"


def test_create_posts_json_once(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"POST {PODS}", pod(uid="u"), status=201)
    assert cluster.create(pod())["metadata"]["uid"] == "u"
    assert api.last().headers["Content-Type"] == "application/json"
    assert len(api.asked) == 1


def test_a_name_cannot_leave_its_path(api: FakeApi, cluster: Cluster) -> None:
    with pytest.raises(NotFound):
        cluster.get("Pod", "ns", "../../secrets/s?x=1#y")
    # aiohttp shows the decoded path; what matters is that the last part stayed one part and became no query.
    assert api.last().path == f"{PODS}/../../secrets/s?x=1#y"
    assert api.last().query == {}


def test_merge_patch_and_scale(api: FakeApi, cluster: Cluster) -> None:
    api.answer("PATCH /apis/apps/v1/namespaces/ns/statefulsets/s/scale", {"kind": "Scale"})
    cluster.scale("ns", "s", 0)
    asked = api.last()
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.body == {"spec": {"replicas": 0}}


def test_delete_carries_its_preconditions(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"DELETE {POD}", pod())
    cluster.delete("Pod", "ns", "p", uid="u1", resource_version="7", grace_s=0, propagation="Foreground")
    assert api.last().body == {
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
    }  # fmt: skip
    cluster.delete("Pod", "ns", "p")
    assert api.last().body == {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}


def test_list_goes_through_all_pages_and_names_each_objects_kind(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"GET {PODS}", {"metadata": {"continue": "c1"}, "items": [{"metadata": {"name": "a"}}]})
    api.answer(f"GET {PODS}", {"metadata": {}, "items": [{"metadata": {"name": "b"}}]})
    found = list(cluster.list("Pod", "ns", labels={"b": "2", "a": "1"}, fields={"spec.nodeName": "n"}, limit=1))
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert {(item["kind"], item["apiVersion"]) for item in found} == {("Pod", "v1")}
    assert api.asked[0].query == {"limit": "1", "labelSelector": "a=1,b=2", "fieldSelector": "spec.nodeName=n"}
    assert api.asked[1].query["continue"] == "c1"


def test_a_list_that_expires_between_pages_begins_again(api: FakeApi, cluster: Cluster) -> None:
    expired = status_body(410, "Expired", "The provided continue parameter is too old")
    api.answer(f"GET {PODS}", {"metadata": {"continue": "c1"}, "items": [{"metadata": {"name": "a"}}]})
    api.answer(f"GET {PODS}", expired, status=410)
    api.answer(f"GET {PODS}", {"metadata": {}, "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]})
    assert [item["metadata"]["name"] for item in cluster.list("Pod", "ns")] == ["a", "a", "b"]
    assert "continue" not in api.last().query


def test_a_list_that_keeps_expiring_is_gone(api: FakeApi, cluster: Cluster) -> None:
    for _ in range(3):
        api.answer(f"GET {PODS}", {"metadata": {"continue": "c"}, "items": []})
        api.answer(f"GET {PODS}", status_body(410, "Expired", "too old"), status=410)
    with pytest.raises(Gone):
        list(cluster.list("Pod", "ns"))


def test_log_tail_is_bytes_even_when_it_is_no_text(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"GET {POD}/log", b"\xff\xfe42\n")
    assert cluster.log_tail("ns", "p", "main", tail_lines=5, previous=True, timestamps=True) == b"\xff\xfe42\n"
    assert api.last().query == {
        "container": "main", "tailLines": "5", "limitBytes": "1048576", "previous": "true", "timestamps": "true",
    }  # fmt: skip


def test_the_log_of_a_container_that_waits_is_a_bad_request(api: FakeApi, cluster: Cluster) -> None:
    text = 'container "main" in pod "p" is waiting to start: ContainerCreating'
    api.answer(f"GET {POD}/log", status_body(400, "BadRequest", text), status=400)
    with pytest.raises(BadRequest) as caught:
        cluster.log_tail("ns", "p", "main")
    assert caught.value.message == text


@pytest.mark.parametrize("allowed", [True, False])
def test_access_review_asks_about_these_credentials(api: FakeApi, cluster: Cluster, allowed: bool) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    api.answer(f"POST {path}", {"status": {"allowed": allowed}}, status=201)
    assert cluster.access_review(verb="create", kind="StatefulSet", namespace="ns") is allowed
    assert api.last().body["spec"]["resourceAttributes"] == {
        "verb": "create", "group": "apps", "resource": "statefulsets", "namespace": "ns",
    }  # fmt: skip


def test_a_taken_name_and_a_failed_precondition_are_told_apart(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"POST {PODS}", status_body(409, "AlreadyExists", 'pods "p" already exists'), status=409)
    api.answer(
        f"DELETE {POD}", status_body(409, "Conflict", "Precondition failed: UID in precondition: u1"), status=409
    )
    with pytest.raises(AlreadyExists):
        cluster.create(pod())
    with pytest.raises(Conflict):
        cluster.delete("Pod", "ns", "p", uid="u1")


def test_retry_after_comes_from_the_header(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"GET {POD}", status_body(429, "TooManyRequests", "slow down"), status=429, headers={"Retry-After": "7"})
    with pytest.raises(TooManyRequests) as caught:
        cluster.get("Pod", "ns", "p")
    assert caught.value.retry_after_s == 7.0
    assert caught.value.retryable
    assert len(api.asked) == 1


def test_an_error_without_a_status_body_keeps_its_text(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"GET {POD}", b"<html>bad gateway</html>", status=502)
    with pytest.raises(KubeError) as caught:
        cluster.get("Pod", "ns", "p")
    assert (caught.value.code, caught.value.status) == ("server_error", 502)
    assert "bad gateway" in caught.value.message


@pytest.mark.parametrize("body", [b"<html>login</html>", b"", b"[]", b'"x"'])
def test_an_answer_that_is_no_object_is_a_bad_answer(api: FakeApi, cluster: Cluster, body: bytes) -> None:
    api.answer(f"GET {POD}", body)
    with pytest.raises(BadAnswer):
        cluster.get("Pod", "ns", "p")


def test_an_operation_the_cluster_does_not_know(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"GET {POD}", status_body(501, "NotImplemented", "not here"), status=501)
    with pytest.raises(NotImplementedByCluster):
        cluster.get("Pod", "ns", "p")


def test_a_redirect_is_not_followed(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"GET {POD}", b"", status=302, headers={"Location": f"{api.url}/api/v1/namespaces/ns/secrets/s"})
    with pytest.raises(KubeError):
        cluster.get("Pod", "ns", "p")
    assert [asked.path for asked in api.asked] == [POD]


def test_a_write_that_got_no_answer_may_have_happened_and_is_not_repeated(api: FakeApi, cluster: Cluster) -> None:
    api.handle(f"POST {PODS}", reset)
    with pytest.raises(Unreachable) as caught:
        cluster.create(pod())
    assert caught.value.maybe_done
    assert len(api.asked) == 1


def test_a_read_over_a_connection_that_was_just_closed_is_repeated_once(api: FakeApi, cluster: Cluster) -> None:
    api.handle(f"GET {POD}", reset)
    api.answer(f"GET {POD}", raw_pod())
    assert cluster.get("Pod", "ns", "p")["kind"] == "Pod"
    assert len(api.asked) == 2


def test_a_read_that_is_cut_twice_is_unreachable(api: FakeApi, cluster: Cluster) -> None:
    api.handle(f"GET {POD}", reset)
    with pytest.raises(Unreachable) as caught:
        cluster.get("Pod", "ns", "p")
    assert not caught.value.maybe_done
    assert len(api.asked) == 2


def test_silence_ends_after_the_read_timeout(api: FakeApi, credentials: Credentials) -> None:
    api.handle(f"POST {PODS}", silent)
    impatient = Cluster(credentials, read_timeout_s=0.2)
    with pytest.raises(Unreachable) as caught:
        impatient.create(pod())
    assert caught.value.maybe_done
    assert len(api.asked) == 1


def test_nobody_listening_means_nothing_was_done() -> None:
    with pytest.raises(Unreachable) as caught:
        Cluster(Credentials(server="http://127.0.0.1:21299", token="x")).create(pod())
    assert not caught.value.maybe_done
    assert caught.value.retryable


def test_a_server_that_ran_out_of_time_may_have_acted(api: FakeApi, cluster: Cluster) -> None:
    api.answer(f"POST {PODS}", status_body(504, "Timeout", "Timeout: request did not complete"), status=504)
    with pytest.raises(ServerTimeout) as caught:
        cluster.create(pod())
    assert caught.value.maybe_done


def test_proxies_of_the_environment_are_not_used(
    api: FakeApi, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:21298")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    api.answer("GET /version", {"major": "1", "minor": "36"})
    assert Cluster(credentials).version()["minor"] == "36"


def test_one_cluster_serves_many_threads_over_kept_connections(api: FakeApi, cluster: Cluster) -> None:
    ports: set[str] = set()

    async def note(request: Any) -> Any:
        from aiohttp import web

        ports.add(str(request.transport.get_extra_info("peername")))
        return web.json_response({"kind": "Pod"})

    api.handle(f"GET {POD}", note)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                cluster.get("Pod", "ns", "p")
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(api.asked) == 160
    assert len(ports) <= 8


def test_unknown_kinds_and_missing_namespaces_send_nothing(api: FakeApi, cluster: Cluster) -> None:
    for kind, namespace in (("Nonsense", "ns"), ("Pod", None), ("Node", "ns")):
        with pytest.raises(SpecError):
            cluster.get(kind, namespace, "x")
    assert api.asked == []


def test_a_repr_shows_no_token(credentials: Credentials) -> None:
    assert "t0ken" not in repr(credentials)


def test_importing_the_client_does_not_load_the_kubernetes_package() -> None:
    """Half a second and 25 MiB that a process which never asks a cluster should not pay."""
    code = "import sys, kubekit.client, kubekit.specs; raise SystemExit('kubernetes' in sys.modules)"
    platform = Path(__file__).parents[2] / "platform"
    assert subprocess.run([sys.executable, "-c", code], cwd=platform, check=False).returncode == 0


def test_a_cluster_can_be_used_again_after_close(api: FakeApi, cluster: Cluster) -> None:
    api.answer("GET /version", {"major": "1"})
    cluster.version()
    cluster.close()
    assert cluster.version() == {"major": "1"}


def test_tls_is_verified_with_the_given_ca_alone(tmp_path: Path) -> None:
    from tests.kubekit.certificates import authority

    ours, theirs = authority(), authority()
    with serving(FakeApi(), ssl_context=ours.server_context(tmp_path)) as api:
        api.answer("GET /version", {"major": "1"})
        good = Credentials(server=api.url, ca_data=ours.certificate, token="x")
        assert Cluster(good).version() == {"major": "1"}
        with pytest.raises(Unreachable) as caught:
            Cluster(Credentials(server=api.url, ca_data=theirs.certificate, token="x")).version()
        assert caught.value.code == "tls_failure"
        assert not caught.value.retryable


def test_a_client_certificate_is_shown_without_touching_the_disk(tmp_path: Path) -> None:
    from tests.kubekit.certificates import authority

    ours = authority()
    cert, key = ours.issue("portal")
    with serving(FakeApi(), ssl_context=ours.server_context(tmp_path, ask_client=True)) as api:
        api.answer("GET /version", {"major": "1"})
        mine = Credentials(server=api.url, ca_data=ours.certificate, client_cert=cert, client_key=key)
        assert Cluster(mine).version() == {"major": "1"}
        with pytest.raises(Unreachable):
            Cluster(Credentials(server=api.url, ca_data=ours.certificate, token="x")).version()
