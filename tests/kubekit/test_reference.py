"""References of images as registries read them; what is none is refused with the cause."""

from __future__ import annotations

import pytest

from kubekit.errors import SpecError
from kubekit.reference import allowed, parse, parse_prefix
from kubekit.specs.checks import check_image

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("debian", "docker.io/library/debian"),
        ("debian:bookworm", "docker.io/library/debian:bookworm"),
        ("index.docker.io/debian", "docker.io/library/debian"),
        ("team/app", "docker.io/team/app"),
        ("registry.example/team/app:2.1-rc_3", "registry.example/team/app:2.1-rc_3"),
        ("registry.example:5000/app", "registry.example:5000/app"),
        ("registry.example:5000/a/b/c:v1", "registry.example:5000/a/b/c:v1"),
        ("localhost/app", "localhost/app"),
        ("localhost:5000/app:1", "localhost:5000/app:1"),
        ("10.0.0.7:5000/app", "10.0.0.7:5000/app"),
        (f"debian@{DIGEST}", f"docker.io/library/debian@{DIGEST}"),
        (f"r.example/a:1@{DIGEST}", f"r.example/a:1@{DIGEST}"),
        ("a__b/c.d/e---f_g", "docker.io/a__b/c.d/e---f_g"),
        ("app:_" + "x" * 127, "docker.io/library/app:_" + "x" * 127),
    ],
)
def test_a_reference_is_read_as_registries_read_it_and_clusters_take_it(text: str, full: str) -> None:
    found = parse(text)
    assert found.text == full
    assert parse(found.text) == found
    check_image(found.text, "Always")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("a" * 513, "too_long"),
        ("r.example/" + "a/" * 130 + "b", "too_long"),
        ("https://registry.example/app", "scheme"),
        ("docker://debian", "scheme"),
        ("debian bookworm", "space"),
        ("debian\n", "space"),
        ("débian", "space"),
        ("debian\u200b", "space"),
        ("Debian", "upper_case"),
        ("registry.example/Team/app", "upper_case"),
        ("-r.example/app", "bad_registry"),
        ("r_r.example/app", "bad_registry"),
        ("r.example:port/app", "bad_registry"),
        ("r.example:123456/app", "bad_registry"),
        ("r.example/", "bad_path"),
        ("/app", "bad_path"),
        ("r.example//app", "bad_path"),
        ("r.example/../app", "bad_path"),
        ("r.example/a___b", "bad_path"),
        ("r.example/a..b", "bad_path"),
        ("r.example/-a", "bad_path"),
        ("app;rm", "bad_path"),
        ("$(id)", "bad_path"),
        ("a" * 64, "bad_path"),
        ("debian:", "bad_tag"),
        ("debian:-x", "bad_tag"),
        ("debian:" + "x" * 129, "bad_tag"),
        ("debian@", "bad_digest"),
        ("debian@sha256:123", "bad_digest"),
        (f"debian@{DIGEST}0", "bad_digest"),
        (f"debian@{DIGEST.upper()}", "bad_digest"),
        (f"debian@{DIGEST}@{DIGEST}", "bad_digest"),
        ("debian@sha512:" + "0" * 128, "bad_digest"),
    ],
)
def test_what_is_no_reference_is_refused_with_its_cause(text: str, code: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse(text)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "prefixes", "good"),
    [
        ("debian", [], False),
        ("debian", ["docker.io"], True),
        ("debian", ["docker.io/library"], True),
        ("debian", ["docker.io/library/debian"], True),
        ("debian", ["docker.io/lib"], False),
        ("r.example/team/app", ["r.example/team"], True),
        ("r.example/team-evil/app", ["r.example/team"], False),
        ("r.example.evil/team/app", ["r.example"], False),
        ("r.example:5000/app", ["r.example"], False),
        ("r.example:5000/app", ["q.example", "r.example:5000"], True),
    ],
)
def test_a_prefix_covers_whole_parts_alone(text: str, prefixes: list[str], good: bool) -> None:
    assert allowed(parse(text), prefixes) is good


def test_a_prefix_names_a_registry() -> None:
    assert parse_prefix(" r.example/team/ ") == "r.example/team"
    assert parse_prefix("localhost:5000") == "localhost:5000"
    for text, code in (
        ("", "empty"),
        ("https://r.example", "scheme"),
        ("team/app", "bad_registry"),
        ("R.example", "upper_case"),
        ("r.example/a:1", "bad_path"),
        ("r.example/a b", "bad_path"),
    ):
        with pytest.raises(SpecError) as refused:
            parse_prefix(text)
        assert refused.value.code == code, text
