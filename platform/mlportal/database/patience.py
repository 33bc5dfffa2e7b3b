"""A connection to PostgreSQL that does not wait for ever.

A server that is frozen, or whose machine stands still, neither answers nor closes. Over TCP the kernel gives up in the
end; over a unix socket nothing does, and the server's own time-outs do not run either.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")


class Connection(psycopg.Connection[Any]):
    """Ends itself when an answer takes longer than ``patience_s``; what waited for it fails as if it had been cut.

    Whether the server carried it out is not known. None waits as long as it takes: for work that nobody waits for.
    """

    patience_s: ClassVar[float | None] = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """As psycopg's, which has every answer pass here. Raises ``psycopg.OperationalError``."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience_s)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server has not answered for {self.patience_s:g} s") from error
