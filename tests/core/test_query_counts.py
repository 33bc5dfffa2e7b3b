"""What each list costs the database, committed: a change that adds a statement shows in the diff of one file.

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

from apps.tenants import tokens
from tests.core.test_routes import ROUTES, world
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
    if os.environ.get("MLPORTAL_WRITE_QUERY_COUNTS"):
        BASELINE.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    assert found == json.loads(BASELINE.read_text(encoding="utf-8"))
    over = {name: count for name, count in found.items() if count > MOST}
    assert over == {}
