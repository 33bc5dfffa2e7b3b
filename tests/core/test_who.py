"""Parts of the portal have names that people understand, in both languages, and are found by them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from django.test import Client
from django.utils import translation

from apps.core import actors, audit, verbs, who
from apps.core.models import AuditEntry
from tests.tenants import make

ROOT = Path(__file__).resolve().parents[2]


def system_parts() -> set[str]:
    """Every literal that the source passes to ``actors.system``."""
    found = set()
    for path in (ROOT / "apps").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "actors.system" and node.args:
                assert isinstance(node.args[0], ast.Constant), path
                found.add(node.args[0].value)
    return found


def test_each_part_of_the_portal_that_acts_has_a_name_in_both_languages() -> None:
    parts = system_parts() | {"scheduler"}  # written by a statement of its own
    assert {"reconciler", "bootstrap"} < parts
    for part in parts:
        assert part in who.PARTS
        english = who.words(part)
        with translation.override("zh-hans"):
            assert who.words(part) != english


@pytest.mark.django_db
def test_audit_and_history_show_the_name_and_the_audit_is_searched_by_it() -> None:
    queue, client = make.queue(), Client()
    client.force_login(make.admin())
    audit.record(actor=actors.system("reconciler"), verb="queue.quota", obj=queue)
    audit.record(actor=make.actor(make.user(username="background")), verb="queue.check", obj=queue)
    for page in ("/audit", f"/queues/{queue.pk}/history"):
        text = client.get(page).text
        assert "Portal (background work)" in text
        assert ">reconciler<" not in text
    found = client.get("/audit", {"who": "background w"}).text
    assert "Portal (background work)" in found
    assert "asked for a check" not in found
    assert "asked for a check" in client.get("/audit", {"who": "background"}).text


@pytest.mark.django_db
def test_the_audit_is_searched_by_the_words_of_what_was_done() -> None:
    queue, client = make.queue(), Client()
    client.force_login(make.admin())
    audit.record(actor=actors.system("reconciler"), verb="queue.quota", obj=queue)
    audit.record(actor=actors.system("reconciler"), verb="queue.check", obj=queue)
    rows = AuditEntry.objects.as_system()
    assert [entry.verb for entry in rows.filter(verbs.matching("changed the quo"))] == ["queue.quota"]
    assert [entry.verb for entry in rows.filter(verbs.matching("queue.ch"))] == ["queue.check"]
    with translation.override("zh-hans"):
        assert [entry.verb for entry in rows.filter(verbs.matching(verbs.words("queue.quota")))] == ["queue.quota"]
    assert "changed the quota" in client.get("/audit", {"verb": "the quota"}).text
