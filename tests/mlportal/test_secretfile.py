"""The keys outside the database."""

import os
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


def _mounted(mode: int, uid: int, gid: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, uid, gid, 10, 0, 0, 0))


@pytest.mark.parametrize(
    ("found", "is_open"),
    [
        (_mounted(0o100440, 0, 1000), False),
        (_mounted(0o100444, 0, 1000), True),
        (_mounted(0o100460, 0, 1000), True),
        (_mounted(0o100440, 0, 2000), True),
        (_mounted(0o100440, 1000, 1000), True),
        (_mounted(0o100400, 1000, 1000), False),
    ],
)
def test_a_secret_that_kubernetes_mounts_for_the_group_of_the_pod_is_closed_enough(monkeypatch, found, is_open):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getegid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [1000])
    assert secretfile._open_to_others(found) is is_open


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
