"""Collect the words of the interface for translation, and check that none is missing. Needs GNU gettext."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import django
import polib
from django.conf import settings
from django.core.management import call_command

from mlportal.paths import ROOT

LOCALE = ROOT / "platform" / "mlportal" / "locale"
LANGUAGE = "zh_Hans"
_IGNORED = ("node_modules/*", ".venv/*", ".portal/*", "docker/*", "tests/*", "docs/*")


def collect() -> int:
    """Bring the catalogue up to date; translations that are there stay."""
    _collect_into(LOCALE)
    return os.EX_OK


def check() -> int:
    """Say which words have no translation, an unsure one, or one that lost a placeholder. Exit status 1 if any."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "locale"
        shutil.copytree(LOCALE, copy)
        _collect_into(copy)
        catalogue = polib.pofile(str(copy / LANGUAGE / "LC_MESSAGES" / "django.po"))
    wrong = [*((entry, "is not translated") for entry in catalogue.untranslated_entries())]
    wrong += [(entry, "has an unsure translation (fuzzy)") for entry in catalogue.fuzzy_entries()]
    for entry, why in wrong:
        where = entry.occurrences[0][0] if entry.occurrences else "?"
        sys.stdout.write(f"{where}: {entry.msgid!r} {why}\n")
    if wrong:
        sys.stdout.write(f"{len(wrong)} words to translate: make messages, then edit platform/mlportal/locale\n")
    return 1 if wrong else os.EX_OK


def _collect_into(locale: Path) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
    os.chdir(ROOT)
    settings.LOCALE_PATHS = [locale]
    django.setup()
    call_command(
        "makemessages",
        locale=[LANGUAGE],
        ignore_patterns=list(_IGNORED),
        add_location="file",
        no_obsolete=True,
        extensions=["html", "txt", "py"],
        verbosity=0,
    )
