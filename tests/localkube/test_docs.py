"""docs/localkube.md names everything that is served and refused."""

import re
from pathlib import Path

import pytest

from localkube.resources import BUILTIN, REFUSED, REFUSED_SUBRESOURCES
from localkube.schema import SPEC, TOP

CODE = Path(__file__).parents[2] / "platform" / "localkube"
TEXT = (Path(__file__).parents[2] / "docs" / "localkube.md").read_text()


def test_every_kind_served_or_refused_is_listed():
    refused = {what.partition(" (")[0] for what in REFUSED.values()} - {"the events.k8s.io group"}
    assert [kind for kind in sorted(refused | {r.kind for r in BUILTIN}) if kind not in TEXT] == []


def test_every_refused_subresource_is_listed():
    names = {name for group in REFUSED_SUBRESOURCES.values() for name in group}
    assert [name for name in sorted(names) if f"`{name}`" not in TEXT] == []


def test_every_kind_with_known_fields_is_served():
    assert (SPEC.keys() | TOP.keys()) - {r.key for r in BUILTIN} == set()


ROWS = re.findall(r"^\| ([\w ]+) \| ((?:`\w+`(?:, )?)+) \| (\d+) \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("part", "modules", "said"), ROWS)
def test_a_part_has_about_as_many_lines_as_it_says(part, modules, said):
    files = [file for name in re.findall(r"\w+", modules) for file in (CODE / name).glob("*.py")]
    files += [CODE / f"{name}.py" for name in re.findall(r"\w+", modules) if (CODE / f"{name}.py").is_file()]
    lines = sum(len(file.read_text().splitlines()) for file in files)
    assert abs(lines - int(said)) <= max(60, int(said) / 10), f"{part}: {lines}"


def test_every_module_belongs_to_one_part():
    named = [name for _part, modules, _said in ROWS for name in re.findall(r"\w+", modules)]
    there = {file.stem for file in CODE.glob("*.py")} - {"__init__"} | {"controllers", "node"}
    assert sorted(named) == sorted(there)
