"""The counter of changes, which the database itself keeps: what the page reads to know whether to look again."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, delete, insert, update

from rewind.registry import database, leases, schema, streams
from rewind.registry.database import writing
from rewind.views import change_count
from tests.support.registry import G1


def values(table):
    """Return a row of a table: what does not matter is filled in."""
    kinds = {"INTEGER": 7, "BIGINT": 7, "FLOAT": 1.0, "DATETIME": database.now(), "JSON": {}}
    return {c.name: kinds.get(str(c.type).partition("(")[0], "x") for c in table.c}


WATCHED = sorted(
    {t.name for t in schema.metadata.sorted_tables}
    - {"protocol", "changes", "plans", "mirror_deletions", "announcements", "consumer_moves", "shared_outputs"}
    - {"publications", "deaths", "table_sights", "table_changes", "owners", "audit"}
)


def test_each_change_of_what_is_shown_is_counted(url):
    for name in WATCHED:
        table = schema.metadata.tables[name]
        with writing(url) as connection:
            for parent in {key.column.table for key in table.foreign_keys} - {table}:
                connection.execute(insert(parent).values(values(parent)))
        for statement in (insert(table).values(values(table)), update(table).values(values(table)), table.delete()):
            before = change_count.number(url)
            # Without this product's own settings: another release, or a person with a client.
            with create_engine(url).begin() as connection:
                connection.execute(statement)
            assert change_count.number(url) == before + 1, statement
        with writing(url) as connection:
            for parent in {key.column.table for key in table.foreign_keys}:
                connection.execute(delete(parent))


def test_what_is_rolled_back_is_not_counted(url):
    before = change_count.number(url)
    with database.engine(url).connect() as connection:
        streams.wish(connection, G1, streams.GENERATION, streams.DRAIN)
        connection.rollback()
    assert change_count.number(url) == before


def test_a_lease_that_is_renewed_changes_nothing(url):
    with writing(url) as connection:
        token = leases.take(connection, G1, leases.this_driver())
    before = change_count.number(url)
    with writing(url) as connection:
        leases.renew(connection, G1, token)
    assert change_count.number(url) == before
    with writing(url) as connection:
        leases.give_back(connection, G1, token)
    assert change_count.number(url) == before + 1


@pytest.mark.parametrize("gone", ["DELETE FROM changes", "DROP TABLE changes"])
def test_a_registry_that_does_not_count_has_no_number(own_url, gone):
    assert change_count.number(own_url) == 0
    with database.engine(own_url).begin() as connection:
        connection.exec_driver_sql(gone)
    assert change_count.number(own_url) is None


def test_no_registry_has_no_number(bare_url):
    assert change_count.number(bare_url) is None
