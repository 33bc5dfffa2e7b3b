"""The keys outside the database."""

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from mlportal import secretfile
from mlportal.secretfile import BadSecretFile


def test_the_file_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    file = tmp_path / "secrets" / "portal.json"
    first = secretfile.ensure(file)
    assert secretfile.ensure(file) == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert len(first.django_key) >= 50


def test_processes_that_start_together_get_the_same_keys(tmp_path):
    file = tmp_path / "portal.json"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: secretfile.ensure(file), range(16)))
    assert len(found) == 1
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_others_may_read_is_refused_with_the_command_that_mends_it(tmp_path):
    file = tmp_path / "portal.json"
    secretfile.ensure(file)
    file.chmod(0o640)
    with pytest.raises(BadSecretFile, match="chmod 600"):
        secretfile.ensure(file)


def test_a_damaged_file_is_refused_and_not_replaced(tmp_path):
    file = tmp_path / "portal.json"
    file.write_text("{}")
    file.chmod(0o600)
    with pytest.raises(BadSecretFile, match="cannot be read"):
        secretfile.ensure(file)
    assert file.read_text() == "{}"
