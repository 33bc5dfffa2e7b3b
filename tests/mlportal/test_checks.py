"""What `make lint` says about translations."""

import os
import subprocess
import sys

import polib
import pytest

from mlportal import checks
from mlportal.paths import ROOT


def entry(**values):
    return polib.POEntry(occurrences=[("templates/x.html", "")], **values)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (entry(msgid="Start"), "is not translated"),
        (entry(msgid="Start", msgstr="启动", flags=["fuzzy"]), "unsure"),
        (entry(msgid="%(name)s stopped", msgstr="已停止"), "placeholders"),
        (entry(msgid="{count} left", msgstr="剩余 {number}"), "placeholders"),
        (entry(msgid="one", msgid_plural="%(n)s runs", msgstr_plural={0: "运行"}), "placeholders"),
    ],
)
def test_a_faulty_translation_is_named_with_its_place(given, part):
    said = checks.fault(given)
    assert said.startswith("templates/x.html: ")
    assert part in said


@pytest.mark.parametrize(
    "given",
    [
        entry(msgid="%(name)s stopped", msgstr="%(name)s 已停止"),
        entry(msgid="one", msgid_plural="%(n)s runs", msgstr_plural={0: "%(n)s 次运行"}),
    ],
)
def test_a_whole_translation_is_not_complained_about(given):
    assert checks.fault(given) == ""


def test_migrations_are_written_without_a_database_that_runs(tmp_path):
    environ = {**os.environ, "PORTAL_HOME": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    environ.pop("DATABASE_URL", None)
    command = [sys.executable, "-m", "mlportal", "migrations", "core"]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "No changes detected in app 'core'", "")
