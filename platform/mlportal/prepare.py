"""One-off work of a start, in a process of its own: the database's tables, static files, the first records."""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path

import django
import psycopg
from django.conf import settings
from django.core.management import call_command, get_commands
from psycopg import sql

from mlportal import env, stamps
from mlportal.env import Environment

PASSWORD_LINE = "administrator password: "  # noqa: S105 - the words before one
"""How the command `bootstrap` gives a password that it has made."""


def run() -> int:
    """Do what changed since the last time; every step may be repeated. Returns the exit status."""
    environment = env.read()
    file = environment.home.root / "stamps.json"
    before, now = stamps.read(file), stamps.current(environment)
    _make_database(environment)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
    django.setup()
    lift_time_outs()
    if before is None or before.migrate != now.migrate or not environment.database_embedded:
        call_command("migrate", interactive=False, verbosity=0)
    if before is None or before.static != now.static or not environment.home.static.is_dir():
        call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    if "bootstrap" in get_commands():
        _bootstrap(environment)
    stamps.write(file, now)
    return 0


def lift_time_outs() -> None:
    """A migration may take as long as it needs."""
    options = settings.DATABASES["default"]["OPTIONS"]
    options["options"] = f"{options['options']} -c statement_timeout=0"


def _make_database(environment: Environment) -> None:
    if not environment.database_embedded:
        return
    database = environment.database
    with psycopg.connect(host=database.host, user=database.user, dbname="postgres", autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database.name]).fetchone()
        if known is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database.name)))


def _bootstrap(environment: Environment) -> None:
    """Make the first records. A password goes to a file of mode 0600, not to the log: the supervisor shows it once."""
    call_command("bootstrap", stdout=_Catcher(environment.home.first_password))


class _Catcher(StringIO):
    """Passes lines on, but a password at once into its file: what fails later must not take it away."""

    def __init__(self, password_file: Path) -> None:
        super().__init__()
        self.password_file = password_file

    def write(self, text: str) -> int:
        if text.startswith(PASSWORD_LINE):
            descriptor = os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text.removeprefix(PASSWORD_LINE).strip())
        else:
            sys.stdout.write(text)
        return len(text)
