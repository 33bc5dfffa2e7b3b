"""docs/localkube.md names everything that is served and refused."""

from pathlib import Path

from localkube.resources import BUILTIN, REFUSED, REFUSED_SUBRESOURCES
from localkube.schema import SPEC, TOP

TEXT = (Path(__file__).parents[2] / "docs" / "localkube.md").read_text()


def test_every_kind_served_or_refused_is_listed():
    refused = {what.partition(" (")[0] for what in REFUSED.values()} - {"the events.k8s.io group"}
    assert [kind for kind in sorted(refused | {r.kind for r in BUILTIN}) if kind not in TEXT] == []


def test_every_refused_subresource_is_listed():
    names = {name for group in REFUSED_SUBRESOURCES.values() for name in group}
    assert [name for name in sorted(names) if f"`{name}`" not in TEXT] == []


def test_every_kind_with_known_fields_is_served():
    assert (SPEC.keys() | TOP.keys()) - {r.key for r in BUILTIN} == set()
