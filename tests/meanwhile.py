"""What another connection to the database does while a transaction of the test is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django.db import connection

WAIT_S = 90


class Meanwhile:
    """Something that another connection does, until it is done or waits for a lock of ours."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what
        self._pid = 0
        self.answer: object = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                self._pid = cursor.fetchone()[0]
            self.answer = self._what()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        finally:
            connection.close()

    def begin(self) -> None:
        """Go as far as it can go while our transaction is open."""
        self._thread.start()
        until = time.monotonic() + WAIT_S
        while self._thread.is_alive() and not self._waits():
            assert time.monotonic() < until
            time.sleep(0.01)

    def end(self) -> None:
        """Our transaction is over."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _waits(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", [self._pid])
            return bool(cursor.fetchone()[0])
