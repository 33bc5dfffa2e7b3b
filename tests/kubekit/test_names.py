"""Names: deterministic, legal for Kubernetes, and never the same for two rows, whatever people type."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubekit import names
from kubekit.errors import SpecError
from kubekit.specs import Identity

RFC_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
ONE = uuid.UUID("6f1d6f5e-3c3a-4a51-9df0-0a6f6f0d5a11")
TWO = uuid.UUID("6f1d6f5e-3c3a-4a51-9df0-0a6f6f0d5a12")

HOSTILE = (
    "notebook", "a" * 63, "a" * 64, "a" * 65, "我的开发实例", '"; drop table--', "../../etc/passwd", "A/B\\C", "-",
    "--", "", " ", "0", "9to5", "x--y", "x-", "-x", "ÄÖÜ", "name\nwith\nlines", "{{ template }}", "$(whoami)",
    "a.b.c", "😀",     "nginx.ingress.kubernetes.io/configuration-snippet",
)  # fmt: skip


def every_name(text: str, row: uuid.UUID) -> list[str]:
    return [
        names.namespace_name(text, row),
        names.instance_name(text, row),
        names.claim_name(text, row),
        names.attempt_pod_name(text, ONE, text, 1, row),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_every_name_is_a_label_that_even_a_service_may_have(text: str) -> None:
    for name in every_name(text, ONE):
        assert len(name) <= 63
        assert RFC_1035.fullmatch(name), name


@pytest.mark.parametrize("text", HOSTILE)
def test_a_stateful_set_leaves_room_for_its_revision_label(text: str) -> None:
    # controller-revision-hash is "<name>-<10 characters>" and a label value.
    assert len(names.instance_name(text, ONE)) + 11 <= 63
    assert len(names.instance_pod_name(text, ONE)) <= 63


def test_names_are_fixed_for_ever() -> None:
    """A change of the algorithm would orphan every object that exists."""
    assert every_name("My Notebook", ONE) == [
        "mlp-my-notebook-ek66lvdx6buly",
        "my-notebook-hzesr5eucoapq",
        "my-notebook-lrnblenaycjla",
        "my-notebook-my-notebook-1-j3af2xw2gqa4a",
    ]


@given(st.text(max_size=80), st.text(max_size=80), st.uuids(), st.uuids())
def test_two_rows_never_share_a_name(text: str, other: str, row: uuid.UUID, other_row: uuid.UUID) -> None:
    if row != other_row:
        assert not set(every_name(text, row)) & set(every_name(other, other_row))


def test_the_same_id_as_another_kind_of_row_is_another_name() -> None:
    assert names.instance_name("x", ONE) != names.claim_name("x", ONE)


@given(st.text(max_size=80), st.text(max_size=80))
def test_safe_slug_keeps_different_texts_apart(one: str, other: str) -> None:
    if one != other:
        assert names.safe_slug(one) != names.safe_slug(other)


@pytest.mark.parametrize("length", [62, 63, 64, 65])
def test_safe_slug_keeps_what_fits_and_hashes_what_does_not(length: int) -> None:
    text = "a" * length
    assert (names.safe_slug(text) == text) is (length <= 63)
    assert len(names.safe_slug(text)) <= 63


def test_nobody_can_type_another_ones_slug() -> None:
    hashed = names.safe_slug("Ünïcode")
    assert names.safe_slug(hashed) != hashed


def test_texts_that_differ_only_at_their_end_stay_apart() -> None:
    assert names.safe_slug("a" * 64) != names.safe_slug("a" * 65)


def test_digest_frames_its_parts() -> None:
    assert names.digest("a", "bc") != names.digest("ab", "c")


def test_attempts_of_one_node_have_different_names_and_show_their_number() -> None:
    first = names.attempt_pod_name("f" * 80, ONE, "n" * 80, 1, ONE)
    second = names.attempt_pod_name("f" * 80, ONE, "n" * 80, 2, TWO)
    assert first != second
    assert "-1-" in first
    assert "-2-" in second
    assert len(names.attempt_pod_name("f" * 80, ONE, "n" * 80, 10**9, ONE)) <= 63


def test_instance_host_is_the_id_alone() -> None:
    expected = "i-6f1d6f5e3c3a4a519df00a6f6f0d5a11.apps.localhost"
    assert names.instance_host(ONE, "apps.localhost") == expected
    assert names.instance_host(str(ONE), "apps.localhost") == expected
    assert len(expected.split(".", maxsplit=1)[0]) <= 63


@pytest.mark.parametrize(
    "domain", ["", "apps localhost", "apps.localhost/x", "apps.localhost:80", "*.x", "a..b", "x" * 64]
)
def test_instance_host_refuses_what_is_no_domain(domain: str) -> None:
    with pytest.raises(SpecError) as caught:
        names.instance_host(ONE, domain)
    assert caught.value.code == "bad_domain"


def test_instance_host_refuses_what_is_no_id() -> None:
    with pytest.raises(SpecError) as caught:
        names.instance_host("evil.example/x", "apps.localhost")
    assert caught.value.code == "bad_id"


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.strip()])
def test_labels_are_legal_for_any_typed_name(text: str) -> None:
    identity = Identity(install="one", kind="attempt", id=str(ONE), generation=3, name=text, attempt=2)
    for key, value in names.labels(identity, "pod").items():
        assert len(value) <= 63, key
        assert LABEL_VALUE.fullmatch(value), key


def test_selectors_hold_only_what_never_changes() -> None:
    before = Identity(install="one", kind="instance", id=str(ONE), generation=1, name="a")
    after = Identity(install="one", kind="instance", id=str(ONE), generation=9, name="renamed")
    assert names.selector(before) == names.selector(after)
    assert names.selector(before).items() <= names.labels(before, "pod").items()


def test_two_portals_on_one_cluster_select_different_objects() -> None:
    one = Identity(install="one", kind="instance", id=str(ONE), generation=1, name="a")
    two = Identity(install="two", kind="instance", id=str(ONE), generation=1, name="a")
    assert names.selector(one) != names.selector(two)


def test_selector_text_is_what_the_api_takes() -> None:
    assert names.selector_text({"b": "2", "a": "1"}) == "a=1,b=2"


@pytest.mark.parametrize("text", [None, "", "no id", "../..", "0" * 31])
def test_a_label_that_names_no_row_is_no_fault(text: str | None) -> None:
    assert names.parse_id(text) is None
    assert names.parse_id("3f0c8a52-6d1e-4b7a-9c55-2b8f7f9b9c10") is not None
