"""Whose page sent it: a cookie counts for the instance's own pages alone (F38, F41)."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.docker import hostile

HOST = "i-1f.apps.test:8000"


def test_forty_hostile_origins_are_elsewhere_and_the_own_one_is_not(origins: ModuleType) -> None:
    for origin in hostile.origins(HOST):
        assert origins.from_elsewhere("GET", {"Origin": origin}, {HOST}), origin
    assert not origins.from_elsewhere("GET", {"Origin": f"http://{HOST}"}, {HOST})


def test_behind_a_proxy_that_renames_the_host_the_public_name_is_an_own_one_too(origins: ModuleType) -> None:
    hosts = {"10.0.0.7:8888", "i-1f.apps.example.com"}
    assert not origins.from_elsewhere("POST", {"Origin": "https://i-1f.apps.example.com"}, hosts)
    assert origins.from_elsewhere("POST", {"Origin": "https://i-2f.apps.example.com"}, hosts)


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
@pytest.mark.parametrize("dest", ["image", "script", "style", "iframe", "frame", "embed", "object", "empty", "worker"])
def test_what_another_page_draws_in_is_elsewhere_though_it_names_no_origin(
    origins: ModuleType, site: str, dest: str
) -> None:
    mode = "navigate" if dest in {"iframe", "frame", "embed", "object"} else "no-cors"
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    assert origins.from_elsewhere("GET", headers, {HOST})


def test_a_link_that_is_followed_opens_and_a_form_that_is_sent_does_not(origins: ModuleType) -> None:
    followed = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert not origins.from_elsewhere("GET", followed, {HOST})
    assert origins.from_elsewhere("POST", followed, {HOST})


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}])
def test_own_pages_bookmarks_and_programs_are_not_elsewhere(origins: ModuleType, headers: dict[str, str]) -> None:
    assert not origins.from_elsewhere("POST", headers, {HOST})


@pytest.mark.parametrize(
    ("cookies", "kept"),
    [
        ("a=1; __Host-mlportal=s; b=2", "a=1; b=2"),
        ("__Host-mlportal=s", ""),
        ("__Host-mlportal=s; __Host-mlportal=t", ""),
        ("x__Host-mlportal=s;y=__Host-mlportal=s", "x__Host-mlportal=s; y=__Host-mlportal=s"),
        ("", ""),
    ],
)
def test_what_one_entered_with_is_not_handed_on(origins: ModuleType, cookies: str, kept: str) -> None:
    assert origins.without(cookies, "__Host-mlportal") == kept
