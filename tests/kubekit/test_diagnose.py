"""Why is it not running? One scripted case for each cause, with the texts that real clusters write."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubekit import errors
from kubekit.diagnose import FINDING_CODES, MAY_PASS, NEXT_CODES, Context, diagnose, findings
from kubekit.diagnose.image import classify_pull
from kubekit.events import observe_events
from kubekit.observe import observe_pod
from tests.kubekit.causes import CASES, QUOTA_TEXT, UNREADY, Case, claim, unscheduled, waiting
from tests.kubekit.samples import container_status, raw_event, raw_pod


def context(case: Case) -> Context:
    pod = None
    if case.status is not None:
        raw = raw_pod(**case.status)
        raw["spec"] |= case.spec
        pod = observe_pod(raw)
    return Context(pod=pod, events=observe_events(case.events), **case.known)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_cause_is_found(case: Case) -> None:
    found = diagnose(context(case))
    assert found is not None
    assert (found.code, found.next) == (case.code, case.next)
    assert case.params.items() <= dict(found.params).items()
    assert all(text.strip() for text in found.evidence)


def test_every_code_has_a_case_and_no_case_an_unknown_code() -> None:
    """Whoever puts the codes into words relies on these lists."""
    assert {case.code for case in CASES} == FINDING_CODES
    assert {case.next for case in CASES} == NEXT_CODES
    assert FINDING_CODES >= MAY_PASS


@pytest.mark.parametrize(
    "given",
    [
        Context(),
        Context(pod=observe_pod(raw_pod())),
        Context(pod=observe_pod(raw_pod(phase="Pending", conditions=[], containerStatuses=[]))),
        Context(pod=observe_pod(raw_pod(**waiting("ContainerCreating")))),
        Context(
            pod=observe_pod(raw_pod(**UNREADY)), events=observe_events([raw_event("Unhealthy", "refused", count=2)])
        ),
    ],
    ids=["nothing known", "running", "just made", "being made", "just started"],
)
def test_nothing_is_wrong_with_what_is_well_or_on_its_way(given: Context) -> None:
    assert diagnose(given) is None


def test_a_running_instance_is_not_accused_of_its_past() -> None:
    statuses = container_status(
        running={"startedAt": "2026-11-30T15:00:06Z"}, last={"exitCode": 137, "reason": "OOMKilled"}
    )
    pod = observe_pod(raw_pod(containerStatuses=statuses))
    assert diagnose(Context(pod=pod, log_tail="No space left on device")) is None


def test_what_was_said_before_this_start_does_not_count() -> None:
    old = observe_events([raw_event("FailedCreate", QUOTA_TEXT, lastTimestamp="2026-11-30T14:00:00Z")])
    assert diagnose(Context(events=old, since=datetime(2026, 11, 30, 14, 59, 59, 900_000, tzinfo=UTC))) is None
    assert diagnose(Context(events=old)) is not None


def test_an_event_of_the_same_second_as_the_start_counts() -> None:
    said = observe_events([raw_event("FailedCreate", QUOTA_TEXT, lastTimestamp="2026-11-30T15:00:00Z")])
    assert diagnose(Context(events=said, since=datetime(2026, 11, 30, 15, 0, 0, 900_000, tzinfo=UTC))) is not None


def test_events_of_an_earlier_pod_of_the_same_name_do_not_count() -> None:
    other = {"kind": "Pod", "name": "x-0", "uid": "earlier"}
    said = observe_events([raw_event("Preempted", "by another", involvedObject=other)])
    assert diagnose(Context(pod=observe_pod(raw_pod(**UNREADY)), events=said)) is None


def test_a_refusal_that_was_overcome_does_not_count() -> None:
    said = observe_events([
        raw_event("FailedCreate", QUOTA_TEXT, lastTimestamp="2026-11-30T15:00:00Z"),
        raw_event("SuccessfulCreate", "create Pod x-0", lastTimestamp="2026-11-30T15:00:05Z", type="Normal"),
    ])  # fmt: skip
    assert diagnose(Context(events=said)) is None


def test_a_bound_volume_is_not_blamed_for_an_old_provisioning_error() -> None:
    pod = observe_pod({**raw_pod(phase="Pending", conditions=[]), "spec": {}})
    said = observe_events([raw_event("ProvisioningFailed", "not yet")])
    assert diagnose(Context(pod=pod, events=said, claims=(claim("Bound"),))) is None


def test_a_missing_volume_is_not_concluded_from_a_list_that_was_not_read() -> None:
    assert diagnose(Context(wanted_claims=("a",))) is None


def test_certain_causes_come_before_vague_ones_and_all_are_there() -> None:
    given = Context(
        pod=observe_pod({**raw_pod(**unscheduled("0/1 nodes are available: 1 Insufficient cpu.")), "spec": {}}),
        waited_s=1000, error=errors.Unreachable("away"),
    )  # fmt: skip
    assert [row.code for row in findings(given)] == ["cluster_unreachable", "no_node_cpu", "start_timeout"]


def test_waiting_is_advised_only_where_it_can_help() -> None:
    verdicts = {case.code: diagnose(context(case)) for case in CASES}
    assert all(found is not None and found.may_pass is (code in MAY_PASS) for code, found in verdicts.items())
    assert not MAY_PASS & {"image_not_found", "volume_full", "out_of_memory", "crashed_at_start", "invalid_spec"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "pull access denied, repository does not exist or may require authorization: "
            "server message: insufficient_scope: authorization failed",
            "image_not_found",
        ),
        ("unexpected status from HEAD request to https://r/v2/x/manifests/1: 403 Forbidden", "image_denied"),
        ("unexpected status from HEAD request to https://r/v2/x/manifests/1: 404 Not Found", "image_not_found"),
        ("manifest unknown: manifest unknown", "image_not_found"),
        ('"team/app:401": not found', "image_not_found"),
        ("dial tcp 10.0.0.1:5000: connect: connection refused", "registry_unreachable"),
        ("net/http: TLS handshake timeout", "registry_unreachable"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "registry_unreachable"),
        ("dial tcp 10.0.0.1:443: i/o timeout", "registry_unreachable"),
        ("tls: first record does not look like a TLS handshake", "registry_unreachable"),
        ("dial tcp: lookup registry-1.docker.io on 10.0.0.53:53: no such host", "registry_unreachable"),
        ("unexpected status: 503 Service Unavailable", "registry_unreachable"),
        ("toomanyrequests: 429 Too Many Requests", "registry_unreachable"),
    ],
)
def test_what_registries_answer(text: str, code: str) -> None:
    assert classify_pull("ErrImagePull", text)[0] == code


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.integers(min_value=1, max_value=400), st.sampled_from(CASES))
def test_no_text_of_a_cluster_or_a_program_upsets_a_diagnosis(text: str, times: int, case: Case) -> None:
    hostile = text * times
    known = {**case.known, "log_tail": hostile}
    given_ = context(replace(case, known=known, events=(*case.events, raw_event("Failed", hostile))))
    for found in findings(given_):
        assert found.code in FINDING_CODES
        assert len(found.evidence) <= 5
        assert all(len(line) <= 500 for line in found.evidence[1:])


@pytest.mark.parametrize(
    "text", ["1" * 100_000, "0/1 nodes are available: " + "1 Insufficient cpu, " * 20_000, '"' * 50_001, "\n" * 90_000]
)
def test_long_texts_cost_no_time(text: str) -> None:
    began = time.process_time()
    pod = observe_pod({**raw_pod(**unscheduled(text)), "spec": {}})
    list(findings(Context(pod=pod, log_tail=text)))
    classify_pull("ErrImagePull", text)
    assert time.process_time() - began < 1
