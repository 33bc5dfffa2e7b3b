"""Template tags: states, times, quantities, links and forms say and show what they should."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django import forms
from django.template import Context, Template
from django.test import RequestFactory
from django.utils import translation

from apps.core import icons, looks, nav, quantities, verbs
from apps.core.actors import Actor
from apps.core.pages import Action
from apps.core.reasons import Explained


def draw(text: str, **context: Any) -> str:
    context.setdefault("request", RequestFactory().get("/things?state=failed&cursor=abc"))
    return Template("{% load portal %}" + text).render(Context(context))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.85, "850 ms"),
        (8.24, "8.2 s"),
        (42, "42 s"),
        (125, "2 min 05 s"),
        (11_040, "3 h 04 min"),
        (183_600, "2 d 3 h"),
    ],
)
def test_durations_are_said_in_the_unit_that_fits(seconds: float, text: str) -> None:
    assert quantities.span(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (2**30, "1 GiB"), (3 * 2**29, "1.5 GiB")])
def test_bytes_have_the_largest_unit_that_leaves_one(count: int, text: str) -> None:
    assert quantities.size(count) == text


def test_relative_times_look_back_and_ahead() -> None:
    now = datetime(2026, 5, 4, 12, tzinfo=UTC)
    assert quantities.relative(now - timedelta(seconds=2), now=now) == "just now"
    assert quantities.relative(now - timedelta(minutes=5), now=now) == "5 min ago"
    assert quantities.relative(now + timedelta(hours=3), now=now) == "in 3 h"
    assert quantities.relative(now - timedelta(days=2), now=now) == "2 days ago"
    with translation.override("zh-hans"):
        assert quantities.relative(now + timedelta(hours=3), now=now) == "3 小时后"


def test_a_chip_has_a_word_and_a_shape_and_no_text_becomes_markup() -> None:
    text = draw("{% state_chip thing %}", thing=SimpleNamespace(state="failed", state_label="<b>failed</b>"))
    assert 'data-state="failed"' in text
    assert "<svg" in text
    assert "&lt;b&gt;failed" in text


def test_every_state_of_every_kind_has_a_look() -> None:
    from django.apps import apps

    tables = [model.TABLE for model in apps.get_models() if hasattr(model, "TABLE")]
    assert tables
    missing = {(table.kind, state) for table in tables for state in table.steps if state not in looks.LOOKS}
    assert missing == set()


def test_icons_come_from_the_package_and_a_missing_one_breaks_no_page() -> None:
    assert "<path" in icons.draw("home")
    assert "<path" not in icons.draw("no-such-icon")
    assert "<path" not in icons.draw("../../package")


def test_every_icon_that_templates_name_is_in_the_package() -> None:
    import re

    from django.conf import settings

    named = {
        name
        for file in (settings.BASE_DIR / "templates").rglob("*.html")
        for name in re.findall(r'{% icon "([^"]+)"', file.read_text(encoding="utf-8"))
    }
    named |= {shape for _colour, shape in looks.LOOKS.values()} | {entry.icon for entry in nav._entries.values()}
    assert len(named) > 20
    assert {name for name in named if "<path" not in icons.draw(name)} == set()


def test_a_banner_has_sentence_next_step_evidence_and_the_button_that_does_it() -> None:
    reason = Explained(
        code="out_of_memory",
        sentence="It used too much.",
        evidence=("OOMKilled",),
        next="Take more.",
        action="resize",
        tone="danger",
    )
    thing = SimpleNamespace(reason=reason)
    action = Action(verb="resize", label="Change size", url="/resize", post=False)
    text = draw("{% reason_banner thing %}", thing=thing, actions=[action])
    for part in ("It used too much.", "Take more.", "OOMKilled", 'href="/resize"', 'role="alert"'):
        assert part in text
    assert "/resize" not in draw("{% reason_banner thing %}", thing=thing, actions=[])


def test_a_destructive_action_carries_what_is_lost_and_a_token() -> None:
    action = Action(verb="delete", label="Delete", url="/x/delete", lost="All of it.", fields={"a": "1"})
    text = draw("{% action_button action %}", action=action, csrf_token="T0KEN")
    assert 'data-confirm="All of it."' in text
    assert 'value="T0KEN"' in text
    assert 'name="a" value="1"' in text


def test_an_action_that_is_not_possible_is_greyed_and_says_why() -> None:
    action = Action(verb="start", label="Start", url="/x", enabled=False, why="It runs already.")
    text = draw("{% action_button action %}", action=action)
    assert " disabled" in text
    assert "It runs already." in text


def test_changed_queries_drop_the_cursor_and_keep_the_filters() -> None:
    assert draw("{% with_query sort='name' %}") == "?state=failed&amp;sort=name"
    assert draw("{% with_query state='' %}") == "?"


def test_a_form_ties_errors_and_help_to_the_field_and_focuses_the_first_wrong_one() -> None:
    class Thing(forms.Form):
        name = forms.CharField(help_text="What it is called.")
        place = forms.CharField()
        more = ("place",)

    form = Thing({"name": "", "place": ""})
    form.is_valid()
    text = Template("{% include 'core/form_fields.html' %}").render(Context({"form": form}))
    assert 'aria-describedby="id_name-error id_name-help"' in text
    assert text.count("autofocus") == 1
    assert '<details class="form-more" open>' in text


def test_audit_says_what_was_done_and_the_step_of_a_state_in_words() -> None:
    entry = SimpleNamespace(verb="queue.create", object_kind="queue", detail={})
    assert ">created<" in draw("{% audit_words entry %}", entry=entry)
    entry = SimpleNamespace(verb="queue.ready", object_kind="queue", detail={"from": "creating", "to": "ready"})
    text = draw("{% audit_words entry %}", entry=entry)
    assert "being made" in text
    assert "queue.ready" in text
    assert verbs.words("something.unheard-of") == "something.unheard-of"


def test_the_rail_marks_the_section_else_the_nearest_address() -> None:
    actor = Actor(user_id=None, name="x", is_admin=True)
    by_section = nav.links(actor, path="/anything", section="audit", queue="")
    assert [link.entry.section for link in by_section if link.active] == ["audit"]
    by_path = nav.links(actor, path="/audit/1", section="", queue="")
    assert [link.entry.section for link in by_path if link.active] == ["audit"]


def test_scoped_places_carry_the_remembered_queue() -> None:
    actor = Actor(user_id=None, name="x")
    urls = {link.entry.section: link.url for link in nav.links(actor, path="/", section="", queue="vision")}
    assert urls["instances"].endswith("?queue=vision")
    odd = {link.entry.section: link.url for link in nav.links(actor, path="/", section="", queue="a&b#c")}
    assert odd["instances"].endswith("?queue=a%26b%23c")
    assert "queue" not in urls["audit"]


def test_every_verb_that_the_code_writes_has_words_or_is_a_state() -> None:
    import re

    from django.apps import apps
    from django.conf import settings

    states = {state for model in apps.get_models() if hasattr(model, "TABLE") for state in model.TABLE.steps}
    written = {
        verb
        for file in (settings.BASE_DIR / "apps").rglob("*.py")
        for verb in re.findall(r'verb="([a-z]+\.[a-z.-]+)"', file.read_text(encoding="utf-8"))
    }
    assert len(written) > 20
    actions = {verb: verb.partition(".")[2] for verb in written}
    assert {verb for verb, action in actions.items() if action not in verbs.ACTIONS and action not in states} == set()
