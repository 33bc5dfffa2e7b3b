"""docs/localkube.md names everything that is refused or merely stored."""

from pathlib import Path

from localkube.resources import BUILTIN, REFUSED
from localkube.schema import FIELDS

TEXT = (Path(__file__).parents[2] / "docs" / "localkube.md").read_text()


def test_every_field_that_is_stored_only_or_refused_is_listed():
    names = {name for fields in FIELDS.values() for name in f"{fields.stored} {fields.refused}".split()}
    assert names
    assert [name for name in sorted(names) if f"`{name}`" not in TEXT] == []


def test_every_kind_served_or_refused_is_listed():
    refused = {what.partition(" (")[0] for what in REFUSED.values()} - {"the events.k8s.io group"}
    assert [kind for kind in sorted(refused | {r.kind for r in BUILTIN}) if kind not in TEXT] == []


def test_every_kind_has_known_fields():
    assert {r.key for r in BUILTIN} - FIELDS.keys() == {"customresourcedefinitions"}
