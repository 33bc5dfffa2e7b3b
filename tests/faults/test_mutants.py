"""The list of mutants keeps up with the code; `make mutants` runs them."""

from __future__ import annotations

import pytest

from tests.faults.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.number} {mutant.file}")
def test_the_line_that_a_mutant_changes_stands_in_the_code_once_and_its_test_exists(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.before) == 1
    file, _, prefix = mutant.test.partition("::")
    assert f"def {prefix}" in (ROOT / file).read_text(encoding="utf-8")
