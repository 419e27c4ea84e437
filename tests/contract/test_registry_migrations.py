"""Migrations: from nothing and from the first release they end in the same tables, which hold any value exactly."""

from __future__ import annotations

from datetime import datetime

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, DateTime, Float, Integer, String, delete, insert, inspect, select, text

from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.registry import database, generations, progress, schema
from rewind.registry.database import now, writing
from rewind.views import change_count
from tests.support.registry import G1, create

LATER = {"changes", "consumer_moves", "deaths", "shared_outputs", "publications", "mirror_proofs", "nights"}
LATER |= {"table_sights", "table_changes", "owners", "audit"}
"""Tables that the first release had not."""
AT = datetime.fromisoformat("1969-12-31T23:59:59.999999")
BODY = {"b": [1, 2**53 + 1, 0.1, -1e308, None, True], "a": {"ü\0\U0001f600": '"\\'}, "": {}, "10": [], "2": [[]]}


def differences(url):
    """Return what tells the tables of a registry from those that this release declares."""
    with database.engine(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, schema.metadata)


def first_release(url):
    """Make the registry of the first release: a pipeline that is live and has committed a batch."""
    database.upgrade(url)
    with writing(url) as connection:
        for name in LATER:
            schema.metadata.tables[name].drop(connection)
        for name in ("late_watermark", "closing_watermark"):
            connection.execute(text(f"ALTER TABLE progress DROP COLUMN {name}"))
        connection.execute(text("ALTER TABLE mirror_commits DROP COLUMN times"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))


def test_from_nothing(bare_url):
    for _ in range(2):
        database.upgrade(bare_url)
    assert differences(bare_url) == []
    with writing(bare_url) as connection:
        assert set(inspect(connection).get_table_names()) == {*schema.metadata.tables, "alembic_version"}
        assert connection.execute(select(schema.protocol.c.number)).scalars().all() == [schema.PROTOCOL]
        assert connection.execute(select(schema.changes.c.number)).scalars().all() == [0]


def test_from_the_first_release_with_what_it_has_recorded(own_url):
    with writing(own_url) as connection:
        made = create(connection)
        generations.set_first(connection, G1)
        progress.record(connection, G1, 1, Batch(4, {0: 5}, {0: 9}, 4, now()))
    undo_triggers(own_url)
    first_release(own_url)
    assert differences(own_url) != []

    database.upgrade(own_url)
    assert differences(own_url) == []
    with writing(own_url) as connection:
        assert generations.live(connection, "visits_converter")[0].frozen == made.frozen
        assert progress.newest(connection, G1).closing_watermark == 0
    before = change_count.number(own_url)
    with writing(own_url) as connection:
        progress.record(connection, G1, 1, Batch(5, {0: 9}, {0: 12}, 3, now(), 1, 2))
    assert change_count.number(own_url) > before


def test_a_registry_of_a_newer_release_is_left_alone(own_url):
    with writing(own_url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(RefusedError, match=r"registry: was migrated by a newer release .*9999"):
        database.upgrade(own_url)


def undo_triggers(url):
    """Drop what counts changes, which the first release had not."""
    with writing(url) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("DROP FUNCTION rewind_changed() CASCADE"))
            return
        query = text("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for name in connection.execute(query).scalars().all():
            connection.execute(text(f"DROP TRIGGER {name}"))


# --- values


def extreme(column):
    """Return a value that is hard to hold for a column."""
    match column.type:
        case BigInteger():
            return 2**63 - 1
        case Integer():
            return 2**31 - 1
        case Float():
            return 0.1
        case DateTime():
            return AT
        case String(length=int(length)):
            return ("ü'\\\n" + "\U0001f600" * length)[:length]
        case schema.Text():
            return "ü'\\\n\U0001f600" * 1_000
    return BODY


@pytest.mark.parametrize("value", [extreme, lambda column: None if column.nullable else extreme(column)])
def test_every_column_gives_back_exactly_what_it_was_given(registry, value):
    registry.execute(delete(schema.protocol))
    for table in schema.metadata.sorted_tables:
        # The database itself counts on what stands there.
        if table is not schema.changes:
            row = {column.name: value(column) for column in table.c}
            registry.execute(insert(table).values(row))
            assert dict(registry.execute(select(table)).one()._mapping) == row, table.name


def test_nothing_is_null_and_not_a_document_that_says_so(registry):
    for table in (schema.leases, schema.streams, schema.steps):
        row = {column.name: None if column.nullable else extreme(column) for column in table.c}
        registry.execute(insert(table).values(row))
        for column in table.c:
            if column.nullable:
                assert registry.execute(select(table).where(column.is_(None))).one(), column


def test_documents_keep_the_order_of_their_keys(registry):
    registry.execute(insert(schema.facts).values(rewind_id="rw-1", name="x", value=BODY, at=AT))
    assert list(registry.execute(select(schema.facts.c.value)).scalar_one()) == ["b", "a", "", "10", "2"]
