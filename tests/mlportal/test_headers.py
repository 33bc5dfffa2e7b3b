"""What every answer of the web process carries, and which files of browser libraries are served."""

import logging

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.test import Client

from mlportal.browser import FILES, MODULES
from mlportal.headers import content_security_policy
from mlportal.logs import LineFormatter

pytestmark = pytest.mark.django_db


@pytest.fixture
def answer():
    return Client().get("/sign-in")


def policy(answer):
    rules = (rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";"))
    return dict(rules)


def test_scripts_and_styles_come_from_the_portal_alone(answer):
    found = policy(answer)
    assert found["default-src"] == "'none'"
    assert found["script-src"] == "'self'"
    assert found["style-src"] == "'self'"
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


def test_no_other_site_may_frame_a_page(answer):
    assert policy(answer)["frame-ancestors"] == "'none'"
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_a_ticket_may_be_posted_to_instances_and_their_origin_check_sees_the_portal(answer):
    assert f"http://*.{settings.PORTAL_APPS_DOMAIN}:" in policy(answer)["form-action"]
    assert answer.headers["Referrer-Policy"] == "strict-origin-when-cross-origin"


def test_the_policy_names_the_given_domain_and_port():
    assert "form-action 'self' http://*.apps.example.org:81 " in content_security_policy(
        apps_domain="apps.example.org", port=81
    )


def test_a_ticket_may_be_posted_over_https_at_any_port():
    assert "https://*.apps.example.org:*" in content_security_policy(apps_domain="apps.example.org", port=443)


def test_cookies_are_closed_to_scripts_and_to_other_sites(answer):
    cookie = answer.cookies["mlportal-csrf"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    assert settings.SESSION_COOKIE_HTTPONLY
    assert settings.SESSION_COOKIE_SAMESITE == "Lax"


def test_an_unknown_host_is_refused():
    assert Client().get("/sign-in", headers={"host": "portal.evil.example"}).status_code == 400


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_listed_file_of_a_library_is_served(name):
    assert finders.find(name) == str(MODULES / FILES[name])


def test_nothing_else_of_a_library_is_served():
    assert finders.find("htmx.org/package.json") is None
    assert finders.find("lib/../htmx.org/package.json") is None


def test_a_log_line_is_one_line_whatever_was_logged():
    formatter = LineFormatter("{levelname} {message}", style="{")
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        import sys

        record = logging.LogRecord("x", logging.ERROR, "f", 1, "it\nbroke", None, sys.exc_info())
    line = formatter.format(record)
    assert "\n" not in line
    assert line.startswith("ERROR it | broke | Traceback")
    assert line.endswith("second")
