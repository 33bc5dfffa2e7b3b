"""Django's PostgreSQL backend, with kept connections that are only asked whether they live when there is reason to.

Django's own check costs a round trip each time a connection leaves the pool, thus at every request, and was half of
what an idle portal asked the database. A server that ends a connection says so: then there is something to read.
"""

from __future__ import annotations

import select
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Needs ``CONN_HEALTH_CHECKS`` off: the pool itself checks nothing."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """One that lives; those that died in the pool are given back closed, which has the pool forget them."""
        while True:
            connection = super().get_new_connection(conn_params)
            if not self.pool or alive(connection):
                return connection
            connection.close()
            self.pool.putconn(connection)


def alive(connection: Any) -> bool:
    """Whether a kept connection can be used. Silence means yes; at any news (an end, a notice) it is asked."""
    news = select.poll()
    news.register(connection.fileno(), select.POLLIN)
    if not news.poll(0):
        return True
    try:
        ConnectionPool.check_connection(connection)
    except psycopg.Error:
        return False
    return True
