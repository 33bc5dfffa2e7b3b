"""One program of the portal by itself, as a container runs it: nothing embedded, nothing supervised, keys given.

The log goes to standard error. What `make up` does before its programs start is the action `migrate`, run once for an
installation or an upgrade; `wait` holds the others back until that has happened.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import django

from mlportal import env, secretfile
from mlportal.env import BadEnvironment, Environment
from mlportal.secretfile import BadSecretFile

MIGRATION_LOCK = 0x6D6C706F  # "mlpo": two jobs that migrate at once would fail half-way
WAIT_S = 600.0


class CannotRun(RuntimeError):
    """What a container needs is missing; the text says what to give."""


def run(action: str, *, listen: str = "") -> int:
    """Run the program until it is told to stop. Returns the exit status (sysexits where it could not start)."""
    try:
        environment = env.read()
        check(environment)
        secretfile.load(environment.secret_file)
    except (BadEnvironment, CannotRun) as error:
        return _refuse(str(error), os.EX_USAGE)
    except BadSecretFile as error:
        return _refuse(str(error), os.EX_CONFIG)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlportal.settings")
    django.setup()
    import_module("mlportal.celery")  # or hints would go where an unconfigured Celery sends them
    if action == "migrate":
        return migrate()
    if action == "wait":
        return wait()
    programs = import_module("mlportal.programs")
    if action == "web":
        programs.web(listen)
    elif action == "gateway":
        programs.gateway(listen=listen)
    elif action == "sshgateway":
        if not environment.ssh_host_key_file.is_file():
            return _refuse(
                f"{environment.ssh_host_key_file} is missing: the host key of the entrance by SSH. Make one with: "
                "ssh-keygen -t ed25519 -N '' -f ssh-host-key, and name it in PORTAL_SSH_HOST_KEY_FILE",
                os.EX_CONFIG,
            )
        programs.sshgateway(listen=listen)
    else:
        _with_ready_file(getattr(programs, action), environment.home.ready_file(action))
    return os.EX_OK


def _with_ready_file(program: Callable[[], None], ready: Path) -> None:
    """Run what writes `ready` once it works. A predecessor's says nothing, and none is left behind."""
    ready.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    ready.unlink(missing_ok=True)
    try:
        program()
    finally:
        ready.unlink(missing_ok=True)
        with suppress(OSError):  # a volume that a pod brings, or another program's ready file
            ready.parent.rmdir()


def check(environment: Environment) -> None:
    """Raise CannotRun unless database, Redis and keys are given: what one container made, the next would not have."""
    for given, name, example in (
        (not environment.database_embedded, "DATABASE_URL", "postgresql://user:password@host:5432/name"),
        (not environment.redis_embedded and environment.redis_url != env.MEMORY, "REDIS_URL", "redis://host:6379/0"),
        (not environment.cluster_embedded, "PORTAL_CLUSTER", "in-cluster, or the path of a kubeconfig"),
        (bool(environment.given_origin), "PORTAL_ORIGIN", "https://portal.example.org"),
        (environment.secret_file.is_file(), "PORTAL_SECRET_FILE", "the path of a file that exists"),
    ):
        if not given:
            raise CannotRun(f"{name} is not set. A program that runs by itself needs it, such as: {example}")


def migrate() -> int:
    """Bring the tables up to this version and make the first records, one job at a time. May be repeated."""
    from django.core.management import call_command  # noqa: PLC0415 - after django.setup()
    from django.db import connection  # noqa: PLC0415

    from mlportal.prepare import lift_time_outs  # noqa: PLC0415

    lift_time_outs()
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = 0")  # for this one lock: the other job takes as long as it needs
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        cursor.execute("RESET lock_timeout")
        try:
            call_command("migrate", interactive=False, verbosity=1)
            call_command("bootstrap")
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])
    return os.EX_OK


def wait(*, within_s: float = WAIT_S) -> int:
    """Return when every migration of this version has been made; what a new version needs is made by its own job."""
    deadline = time.monotonic() + within_s
    said = ""
    while True:
        missing = _missing()
        if not missing:
            return os.EX_OK
        if missing != said:
            _say(f"waiting for the database: {missing}")
            said = missing
        if time.monotonic() > deadline:
            return _refuse(f"after {within_s:.0f} s still: {missing}", os.EX_TEMPFAIL)
        time.sleep(1.0)


def _missing() -> str:
    """What the database lacks, in words; empty when it is as this version wants it."""
    from django.db import DatabaseError, connection  # noqa: PLC0415 - after django.setup()
    from django.db.migrations.executor import MigrationExecutor  # noqa: PLC0415

    try:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return " ".join(str(error).split())
    finally:
        connection.close()
    return f"{len(plan)} migrations to come" if plan else ""


def _say(text: str) -> None:
    sys.stderr.write(f"mlportal: {text}\n")
    sys.stderr.flush()


def _refuse(why: str, code: int) -> int:
    _say(why)
    return code
