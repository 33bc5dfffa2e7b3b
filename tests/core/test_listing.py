"""Lists: keyset paging sees each row once whatever appears meanwhile; bad queries are named."""

from __future__ import annotations

import base64
import json
from uuid import uuid4

import pytest
from django.db.models import Q

from apps.core import listing
from apps.core.errors import Invalid
from apps.core.listing import ListSpec
from apps.storage.models import Volume

SPEC = ListSpec(filters={"text": lambda text: Q(name__icontains=text)})


@pytest.fixture
def many(volume: Volume) -> list[Volume]:
    """25 volumes beside the first."""
    rows = [
        Volume(name=f"n{n:02}", queue=volume.queue, owner=volume.owner, size_bytes=1, claim=f"n{n}", state="bound")
        for n in range(25)
    ]
    return Volume.objects.bulk_create(rows)


@pytest.mark.parametrize("sort", ["name", "-name", "created", "-created"])
def test_paging_by_cursor_sees_every_row_once_in_order(many: list[Volume], sort: str) -> None:
    rows = Volume.objects.as_system()
    seen: list[str] = []
    cursor = ""
    while True:
        page = listing.page(rows, SPEC, {"sort": sort, "limit": "7", "cursor": cursor})
        seen += [row.name for row in page.items]
        if page.next is None:
            break
        cursor = page.next
    assert len(seen) == len(set(seen)) == 26
    if sort.endswith("name"):
        assert seen == sorted(seen, reverse=sort.startswith("-"))


def test_a_page_costs_one_statement_however_deep(many: list[Volume], django_assert_num_queries: object) -> None:
    rows = Volume.objects.as_system()
    cursor = listing.page(rows, SPEC, {"sort": "name", "limit": "20"}).next or ""
    with django_assert_num_queries(1):
        deep = listing.page(rows, SPEC, {"sort": "name", "cursor": cursor})
    assert deep.next != cursor


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"sort": "owner__password"}, "sort_unknown"),
        ({"cursor": "%%%"}, "cursor_invalid"),
        ({"limit": "0"}, "limit_invalid"),
        ({"limit": "201"}, "limit_invalid"),
        ({"limit": "²"}, "limit_invalid"),
    ],
)
def test_a_query_that_cannot_be_read_is_refused_by_name(db: None, query: dict[str, str], code: str) -> None:
    with pytest.raises(Invalid) as caught:
        listing.page(Volume.objects.as_system(), SPEC, query)
    assert caught.value.code == code


def test_filters_in_force_are_told_and_unknown_ones_ignored(many: list[Volume]) -> None:
    page = listing.page(Volume.objects.as_system(), SPEC, {"text": "n0", "password": "x"})
    assert dict(page.active) == {"text": "n0"} and len(page.items) == 10


@pytest.mark.parametrize("inside", [[True, None, "x"], [False, None, "1"], [True, "2026-01-01T00:00:00Z", "no id"],
                                    [False, "no time", "1"], [True, 5, "1"], [False, {"a": 1}, "1"]])  # fmt: skip
def test_a_cursor_that_no_list_gave_out_is_refused_in_words(db: None, inside: list) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps(inside).encode()).decode()
    with pytest.raises(Invalid) as refused:
        listing.page(Volume.objects.as_system(), ListSpec(), {"cursor": cursor})
    assert refused.value.code == "cursor_invalid"


def test_a_zero_byte_in_a_filter_or_cursor_is_refused_in_words(db: None) -> None:
    spec = ListSpec(filters={"name": lambda text: Q(name=text)}, default_sort="name")
    cursor = base64.urlsafe_b64encode(json.dumps([False, "a\0b", str(uuid4())]).encode()).decode()
    for query, code in (({"name": "a\0b"}, "filter_invalid"), ({"cursor": cursor}, "cursor_invalid")):
        with pytest.raises(Invalid) as refused:
            listing.page(Volume.objects.as_system(), spec, query)
        assert refused.value.code == code
