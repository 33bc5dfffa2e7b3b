"""The verbs of kubectl that people use, with the real program; left out where there is none (conftest)."""

import os
import shutil
import socket
import subprocess
import time

import pytest
import yaml

from tests.localkube.manifests import asks, config_map, pod, stateful_set


@pytest.fixture
def kubectl(cluster, ns, tmp_path):
    """Runs kubectl in the test's namespace; the answer is its output, and a failure its error text."""
    program = shutil.which("kubectl")
    assert program
    namespace = ns.rpartition("/")[2]
    environment = os.environ | {"KUBECONFIG": str(cluster.config.home / "kubeconfig"), "HOME": str(tmp_path)}

    def run(*arguments, stdin=None, check=True):
        command = [program, "--namespace", namespace, *arguments]
        done = subprocess.run(
            command, input=stdin, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout if check else done

    run.popen = lambda *arguments: subprocess.Popen(
        [program, "--namespace", namespace, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
    return run


def manifest(*objects):
    return yaml.safe_dump_all(objects)


def quota(**hard):
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}


def kind(name, body):
    return {"apiVersion": "v1", "kind": name} | body


def test_apply_creates_then_leaves_then_changes(kubectl):
    first = manifest(config_map(a="1"), stateful_set(replicas=0))
    assert kubectl("apply", "-f", "-", stdin=first) == "configmap/c created\nstatefulset.apps/web created\n"
    assert kubectl("apply", "-f", "-", stdin=first) == "configmap/c unchanged\nstatefulset.apps/web unchanged\n"
    changed = manifest(config_map(b="1"), stateful_set(replicas=1))
    assert kubectl("apply", "-f", "-", stdin=changed) == "configmap/c configured\nstatefulset.apps/web configured\n"
    assert kubectl("get", "configmap", "c", "-o", "jsonpath={.data}") == '{"b":"1"}'


def test_server_side_apply_and_its_conflict(kubectl):
    kubectl("apply", "--server-side", "--field-manager=mlportal", "-f", "-", stdin=manifest(stateful_set(replicas=0)))
    other = manifest(stateful_set(replicas=2))
    refused = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=other, check=False)
    assert 'Apply failed with 1 conflict: conflict with "mlportal": .spec.replicas' in refused.stderr


def test_get_prints_names_ages_and_what_is_asked_for(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(kind("Pod", pod(resources=asks()))))
    kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=90s")
    header, row = kubectl("get", "pods").splitlines()
    assert (header.split(), row.split()[0]) == (["NAME", "AGE"], "p")
    assert kubectl("get", "pod", "p", "-o", "jsonpath={.status.phase} {.spec.nodeName}") == "Running localkube"
    assert kubectl("get", "po", "-l", "a=b") == ""
    assert kubectl("get", "pods", "-o", "name") == "pod/p\n"
    assert "localkube" in kubectl("get", "nodes")


def test_describe_shows_conditions_and_events(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(kind("Pod", pod(resources=asks("64")))))
    kubectl("wait", "pod/p", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "--timeout=90s")
    text = kubectl("describe", "pod", "p")
    assert "PodScheduled   False" in text
    assert "FailedScheduling" in text
    assert "0/1 nodes are available: 1 Insufficient cpu." in text
    assert "Name:               localkube" in kubectl("describe", "node", "localkube")


def test_describe_of_a_quota_and_a_namespace(kubectl, ns):
    kubectl("apply", "-f", "-", stdin=manifest(quota(pods="2", **{"requests.cpu": "1"})))
    assert "requests.cpu  0     1" in kubectl("describe", "quota", "q")
    assert "Status:       Active" in kubectl("describe", "namespace", ns.rpartition("/")[2])


def test_delete_waits_until_the_object_is_gone(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(kind("Pod", pod())))
    assert kubectl("delete", "pod", "p").startswith('pod "p" deleted')
    assert "NotFound" in kubectl("get", "pod", "p", check=False).stderr


def test_wait_for_deletion_ends(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(stateful_set()))
    kubectl("rollout", "status", "statefulset/web", "--timeout=90s")
    kubectl("delete", "statefulset", "web")
    kubectl("wait", "pod/web-0", "--for=delete", "--timeout=90s")


def test_logs_and_exec(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(kind("Pod", pod())))
    kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=90s")
    assert kubectl("logs", "p") == "line 0\nline 1\nline 2\n"
    assert kubectl("logs", "p", "--tail=1") == "line 2\n"
    assert kubectl("exec", "p", "--", "echo", "hello") == "hello"
    failed = kubectl("exec", "p", "--", "exit", "3", check=False)
    assert (failed.returncode, "command terminated with exit code 3" in failed.stderr) == (3, True)
    assert kubectl("exec", "-i", "p", "--", "cat", stdin="some input") == "some input"


def test_port_forward_carries_several_connections(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(kind("Pod", pod())))
    kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=90s")
    process = kubectl.popen("port-forward", "p", ":7777")
    try:
        line = process.stdout.readline()
        port = int(line.split("->")[0].rpartition(":")[2])
        for text in (b"one", b"two"):
            with socket.create_connection(("127.0.0.1", port), timeout=90) as connection:
                connection.sendall(text)
                assert connection.recv(100) == text
    finally:
        process.terminate()
        process.wait(5)


def test_watch_follows_changes(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(config_map(a="1")))
    process = kubectl.popen("get", "configmaps", "--watch", "--no-headers")
    try:
        assert process.stdout.readline().split()[0] == "c"
        time.sleep(0.3)
        kubectl("apply", "-f", "-", stdin=manifest(config_map("d", a="1")))
        assert process.stdout.readline().split()[0] == "d"
    finally:
        process.terminate()
        process.wait(5)


def test_scale_label_annotate_patch_edit_verbs(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(stateful_set(replicas=0)))
    assert kubectl("scale", "statefulset/web", "--replicas=1") == "statefulset.apps/web scaled\n"
    kubectl("label", "statefulset", "web", "team=a")
    kubectl("annotate", "statefulset", "web", "note=b")
    kubectl("patch", "statefulset", "web", "-p", '{"spec":{"replicas":0}}')
    got = kubectl("get", "statefulset", "web", "-o", "jsonpath={.metadata.labels.team} {.spec.replicas}")
    assert got == "a 0"


def test_a_refusal_reads_as_from_a_real_server(kubectl):
    kubectl("apply", "-f", "-", stdin=manifest(quota(pods="0")))
    failed = kubectl("run", "p", "--image=mlportal/python:1", check=False)
    assert 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0' in failed.stderr
    deployment = kubectl("get", "--raw", "/apis/apps/v1/deployments", check=False)
    assert "localkube does not implement Deployment" in deployment.stderr


def test_version_api_resources_and_what_needs_protobuf(kubectl):
    assert "v1.36.0+localkube" in kubectl("version")
    refused = kubectl("create", "configmap", "c", "--from-literal=a=1", check=False)
    assert "localkube takes no protobuf, which this command sends: use kubectl apply" in refused.stderr
    assert "statefulsets" in kubectl("api-resources", "--api-group=apps")
