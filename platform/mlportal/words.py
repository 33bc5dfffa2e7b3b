"""Collect the words of the interface for translation. Needs GNU gettext."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import django
import polib
from django.conf import settings
from django.core.management import call_command

from mlportal.paths import ROOT

LOCALE = ROOT / "platform" / "mlportal" / "locale"
LANGUAGE = "zh_Hans"
WIDTH = 120
_IGNORED = ("node_modules/*", ".venv/*", ".portal/*", "docker/*", "tests/*", "docs/*")


def collect() -> int:
    """Bring the catalogue up to date; translations that are there stay."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
    django.setup()
    _collect_into(LOCALE)
    # GNU gettext breaks lines elsewhere than the committed file does; without this every line would change.
    polib.pofile(str(LOCALE / LANGUAGE / "LC_MESSAGES" / "django.po"), wrapwidth=WIDTH).save()
    return os.EX_OK


def collected() -> list[polib.POEntry]:
    """What `collect` would write, without writing it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "locale"
        shutil.copytree(LOCALE, copy)
        _collect_into(copy)
        return list(polib.pofile(str(copy / LANGUAGE / "LC_MESSAGES" / "django.po")))


def _collect_into(locale: Path) -> None:
    os.chdir(ROOT)
    settings.LOCALE_PATHS = [locale]
    call_command(
        "makemessages",
        locale=[LANGUAGE],
        ignore_patterns=list(_IGNORED),
        add_location="file",
        no_obsolete=True,
        extensions=["html", "txt", "py"],
        verbosity=0,
    )
