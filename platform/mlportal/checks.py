"""Checks of `make lint` that need Django but no database: missing migrations, and words without a translation."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence

import django
import polib
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from mlportal import words

_PLACEHOLDER = re.compile(r"%\([a-z_]+\)[sd]|\{[a-z_]*\}|%[sd]")


def run() -> int:
    """Say all that is wrong, one line each. Exit status 1 if anything is."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
    django.setup()
    wrong = [*_migrations(), *_words()]
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else os.EX_OK


def make_migrations(labels: Sequence[str]) -> int:
    """What `manage.py makemigrations` does, without a database that runs: it would wait for one only to warn of it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
    settings.DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}
    django.setup()
    call_command("makemigrations", *labels)
    return os.EX_OK


def _migrations() -> list[str]:
    """Changes of models that no migration makes."""
    loader = MigrationLoader(None)
    detector = MigrationAutodetector(loader.project_state(), ProjectState.from_apps(apps))
    changes = detector.changes(graph=loader.graph)
    return [
        f"apps/{app}: no migration for: {operation.describe()} (run: make migrations ARGS={app})"
        for app, migrations in changes.items()
        for migration in migrations
        for operation in migration.operations
    ]


def _words() -> list[str]:
    """Words without a translation, with an unsure one, or with one that lost a placeholder."""
    entries = [entry for entry in words.collected() if not entry.obsolete]
    wrong = [line for entry in entries if (line := fault(entry))]
    if wrong:
        wrong.append(f"{len(wrong)} words to translate: make messages, then edit platform/mlportal/locale")
    return wrong


def fault(entry: polib.POEntry) -> str:
    """What is wrong with a translation; empty when nothing is."""
    where = entry.occurrences[0][0] if entry.occurrences else "?"
    if not entry.translated():
        return f"{where}: {entry.msgid!r} {'has an unsure translation (fuzzy)' if entry.fuzzy else 'is not translated'}"
    texts = [entry.msgstr, *entry.msgstr_plural.values()]
    # A plural form may leave its number out; Chinese has one form for both of English.
    wanted = Counter(_PLACEHOLDER.findall(entry.msgid_plural or entry.msgid))
    if any(text and Counter(_PLACEHOLDER.findall(text)) != wanted for text in texts):
        return f"{where}: {entry.msgid!r} and its translation have different placeholders"
    return ""
