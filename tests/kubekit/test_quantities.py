"""Quantities read exactly as the API server reads them."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubekit.errors import SpecError
from kubekit.quantities import format_bytes, format_cpu, parse_bytes, parse_count, parse_cpu, scale


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0), ("1", 1000), ("0.5", 500), (".5", 500), ("1.", 1000), ("500m", 500), ("1500m", 1500),
        ("2k", 2_000_000),
        ("0.1m", 1), ("100u", 1), ("1n", 1), ("1e3", 1_000_000), ("1E-3", 1), ("+1", 1000), ("-1", -1000), (2, 2000),
        (0.25, 250), ("1001u", 2),
    ],
)  # fmt: skip
def test_cpu_in_millicores_rounded_up(text: str | int | float, millis: int) -> None:
    assert parse_cpu(text) == millis


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0), ("128974848", 128974848), ("129e6", 129_000_000), ("129M", 129_000_000), ("123Mi", 128974848),
        ("1Ki", 1024), ("1k", 1000), ("1E", 10**18), ("1Ei", 1 << 60), ("1.5Gi", 1610612736), ("0.1Ki", 103),
        ("128974848000m", 128974848), ("1m", 1), ("9e300", 2**63 - 1), ("100Ei", 2**63 - 1),
    ],
)  # fmt: skip
def test_bytes_with_binary_decimal_and_exponent_suffixes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 Gi", "1gi", "1K", "1ki", "1KB", "1GB", "abc", "1e", "e3", "--1", "1..2", ".", "0x10", "1_000", "١",
     "1Gi\n", "inf", "nan", "1" * 65, "1e9999", "1,5"],
)  # fmt: skip
def test_what_the_server_refuses_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_bytes(text)
    assert caught.value.code == "bad_quantity"


def test_canonical_forms() -> None:
    assert [format_cpu(value) for value in (0, 1, 500, 1000, 1500, 4000)] == ["0", "1m", "500m", "1", "1500m", "4"]
    assert [format_bytes(value) for value in (0, 1000, 1024, 1 << 30, 3 << 29, 1 << 60)] == [
        "0", "1000", "1Ki", "1Gi", "1536Mi", "1Ei",
    ]  # fmt: skip


@given(st.integers(min_value=0, max_value=2**62))
def test_formatted_bytes_read_back_exactly(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


@given(st.integers(min_value=0, max_value=10**12))
def test_formatted_cpu_reads_back_exactly(millis: int) -> None:
    assert parse_cpu(format_cpu(millis)) == millis


@given(st.text(max_size=70))
def test_any_text_gives_a_number_or_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert isinstance(parse_count(text), int)


def test_scaling_has_no_noise_of_binary_floats() -> None:
    assert scale(1000, 1.1) == 1100
    assert scale(3000, Decimal("1.5")) == 4500
    assert scale(1, 1.01) == 2
