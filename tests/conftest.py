"""What all tests share: a real PostgreSQL for those that ask for a database, and hints that are kept, not run.

One server serves all workers of a run; each worker has a database of its own. Starting it takes half a second.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
import pytest
from _pytest.nodeid import coerce_node_id

RUN_VARIABLE = "MLPORTAL_TEST_RUN"


def _begin_run() -> Path:
    """The folder of this test run: made by the process that a person started, handed down to xdist's workers."""
    folder = os.environ.get(RUN_VARIABLE)
    if folder:
        return Path(folder)
    made = Path(tempfile.mkdtemp(prefix="mlportal-test-"))
    os.environ[RUN_VARIABLE] = str(made)
    return made


_is_first = RUN_VARIABLE not in os.environ
_run = _begin_run()

for _name in [name for name in os.environ if name.startswith("PORTAL_")]:
    del os.environ[_name]
os.environ["PORTAL_HOME"] = str(_run / "home")
os.environ["DATABASE_URL"] = f"postgresql://mlportal@/postgres?host={_run}&port=5432"
os.environ["REDIS_URL"] = "memory://"
os.environ["DJANGO_SETTINGS_MODULE"] = "mlportal.settings"
(_run / "home" / "static").mkdir(parents=True, exist_ok=True)
django.setup()  # before the conftests of folders, which import models


def pytest_configure() -> None:
    """Load Django's settings once the variables above are set; pytest-django does the rest."""
    from django.conf import settings

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # The pool keeps connections open across tests, and the test database could not be dropped.
    settings.DATABASES["default"]["OPTIONS"].pop("pool", None)


_open = ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """Start the server, in the process that began the run."""
    if not _is_first:
        return
    from mlportal.embedded import postgres
    from mlportal.program import started

    postgres.initialise(data=_run / "pg", fsync=False)
    server = postgres.program(data=_run / "pg", run=_run, fsync=False)
    _open.enter_context(started(server, log=_run / "postgres.log"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Make `xdist_group` count: xdist 3.8 writes the group where pytest 9.2 no longer reads it, and says nothing.

    Not before `--last-failed` has chosen, which knows tests by their names without a group.
    """
    for item in session.items:
        named = vars(item).get("_nodeid")
        if named is not None:
            item._id = coerce_node_id(named)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give what failed the names that tests have without a group, or `--last-failed` would not find them again."""
    memory = session.config.pluginmanager.get_plugin("lfplugin")
    failed = memory.lastfailed if memory else {}
    for name in list(failed):
        failed[coerce_node_id(re.sub(r"(?<=\])@[a-z-]+\]$|@[a-z-]+$", "", str(name)))] = failed.pop(name)


def pytest_unconfigure() -> None:
    """End the server and remove everything, in the process that began the run."""
    if not _is_first:
        return
    _open.close()
    shutil.rmtree(_run, ignore_errors=True)
    del os.environ[RUN_VARIABLE]


@dataclass(frozen=True)
class Hint:
    """A Celery message as it was sent."""

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@pytest.fixture
def hints() -> Iterator[list[Hint]]:
    """The hints sent during a test, in order. Nothing runs them: a test that needs the work calls the function."""
    from celery.signals import before_task_publish

    sent: list[Hint] = []

    def keep(sender: str, body: tuple[Any, ...], **_: Any) -> None:
        sent.append(Hint(task=sender, args=tuple(body[0]), kwargs=dict(body[1])))

    before_task_publish.connect(keep, weak=False)
    yield sent
    before_task_publish.disconnect(keep)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis, for tests of what only Redis does. One per worker."""
    from mlportal.embedded import redis
    from mlportal.program import started

    folder = Path(tempfile.mkdtemp(prefix="mlportal-redis-"))
    server = redis.program(data=folder, socket=folder / "redis.sock")
    with started(server, log=folder / "redis.log"):
        yield f"unix://{folder / 'redis.sock'}"
    shutil.rmtree(folder, ignore_errors=True)
