"""The log's table in partitions by the attempt's day, so that old logs go by dropping a table.

Partitions of a week are made ahead by the control process; what has none lands in the default one. The chunks are
compressed already, so the database need not try.
"""

from django.db import migrations

PARTITIONED = """
DROP TABLE flows_logchunk;
CREATE TABLE flows_logchunk (
    day date NOT NULL,
    attempt_id uuid NOT NULL,
    first bigint NOT NULL,
    size integer NOT NULL CHECK (size >= 0),
    packed bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    PRIMARY KEY (day, attempt_id, first)
) PARTITION BY RANGE (day);
ALTER TABLE flows_logchunk ALTER COLUMN packed SET STORAGE EXTERNAL;
CREATE TABLE flows_logchunk_rest PARTITION OF flows_logchunk DEFAULT;
"""
PLAIN = """
DROP TABLE flows_logchunk;
CREATE TABLE flows_logchunk (
    day date NOT NULL,
    attempt_id uuid NOT NULL,
    first bigint NOT NULL,
    size integer NOT NULL CHECK (size >= 0),
    packed bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    PRIMARY KEY (day, attempt_id, first)
);
"""


class Migration(migrations.Migration):
    """See the module's docstring."""

    dependencies = [("flows", "0001_initial")]

    operations = [migrations.RunSQL(PARTITIONED, PLAIN)]
