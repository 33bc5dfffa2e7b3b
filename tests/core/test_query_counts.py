"""What each list and each tab costs the database, committed: a change that adds a statement shows in one file's diff.

``MLPORTAL_WRITE_QUERY_COUNTS=1`` writes the file anew. The session and the person are two statements of every page.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from apps.tenants import tokens
from tests.core.test_routes import PUBLIC, ROUTES, values_for, world
from tests.tenants import make

pytestmark = pytest.mark.django_db
BASELINE = Path(__file__).with_name("query_counts.json")
LISTS = [
    route
    for route in ROUTES
    if not route.params and (route.name.endswith("-list") or route.name.split(":")[-1] in {
        "list", "runs", "volumes", "queues", "teams", "users", "images", "sizes", "audit",
    })
]  # fmt: skip
SIGNED_IN = 2
MOST = 3
__all__ = ["world"]


def statements(client: Client, path: str) -> int:
    """SQL of the second request: the first one fills caches."""
    assert client.get(path).status_code == 200, path
    with CaptureQueriesContext(connection) as caught:
        client.get(path)
    return len(caught)


def test_each_list_costs_what_is_committed_and_at_most_three_statements(world: dict[str, Any]) -> None:
    person = make.admin()
    browser = Client()
    browser.force_login(person)
    _row, text = tokens.create(actor=make.actor(person), name="t")
    program = Client(headers={"Authorization": f"Bearer {text}"})
    found = {
        route.name: statements(program if route.is_api else browser, route.path({}))
        - (1 if route.is_api else SIGNED_IN)
        for route in LISTS
    }
    assert len(found) >= 18
    compare(found, "lists")
    over = {name: count for name, count in found.items() if count > MOST}
    assert over == {}


def test_each_tab_of_an_object_costs_what_is_committed(world: dict[str, Any]) -> None:
    browser = Client()
    browser.force_login(make.admin())
    found = {}
    for route in ROUTES:
        values = values_for(route, world) if "tab" in route.params else None
        if values is None or route.pattern.split("/")[0] in PUBLIC:  # administration: seldom looked at
            continue
        for tab in resolve(route.path(values)).func.view_class.tabs:
            found[f"{route.name} {tab.slug}"] = statements(browser, route.path({**values, "tab": tab.slug})) - SIGNED_IN
    assert {"storage:tab events", "tenants:queue-tab events", "flows:flow-tab log"} <= set(found)
    compare(found, "tabs")


def compare(found: dict[str, int], part: str) -> None:
    """With what is committed; or commit it."""
    known = json.loads(BASELINE.read_text(encoding="utf-8"))
    if os.environ.get("MLPORTAL_WRITE_QUERY_COUNTS"):
        known[part] = found
        BASELINE.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    assert found == known[part]
