"""Migrations: from nothing and from the first release they end in the same tables, which hold any value exactly."""

from __future__ import annotations

from datetime import datetime
from importlib import resources
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, DateTime, Float, Integer, String, delete, insert, inspect, select, text

from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.registry import database, generations, progress, schema
from rewind.registry.database import now, writing
from rewind.views import change_count
from tests.support import postgres
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


def migrated(url, revision):
    """Bring a registry to a revision, as an older release did."""
    config = Config()
    config.set_main_option("script_location", str(resources.files("rewind.registry") / "migrations"))
    with database.engine(url).connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()


def structure(url):
    """Return tables, columns, keys, indexes and triggers as the database itself has them."""
    with database.engine(url).connect() as connection:
        looked = inspect(connection)
        found = {}
        for table in looked.get_table_names():
            indexes = looked.get_indexes(table)
            found[table] = {
                "columns": {(c["name"], str(c["type"]), c["nullable"]) for c in looked.get_columns(table)},
                "key": looked.get_pk_constraint(table)["constrained_columns"],
                "unique": sorted(u["column_names"] for u in looked.get_unique_constraints(table)),
                "foreign": sorted(
                    (f["constrained_columns"], f["referred_table"]) for f in looked.get_foreign_keys(table)
                ),
                "indexes": sorted((i["name"], i["column_names"], i["unique"], only(i)) for i in indexes),
            }
        of = "pg_trigger WHERE NOT tgisinternal" if connection.dialect.name == "postgresql" else None
        query = f"SELECT tgname FROM {of}" if of else "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        return {**found, "triggers": sorted(connection.execute(text(query)).scalars())}


def only(index):
    """Return the condition of a partial index."""
    return [str(value) for name, value in index["dialect_options"].items() if name.endswith("_where")]


@pytest.fixture
def another_bare_url(bare_url, tmp_path, request):
    """A second database of the same kind, without any table."""
    if bare_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path}/another/registry.db"
        return
    made = postgres.another(request.getfixturevalue("postgres_server"), "another_bare")
    yield made
    postgres.drop(made)


def test_the_first_migration_makes_what_the_first_release_had_whatever_is_declared_today(bare_url):
    database_folder(bare_url)
    migrated(bare_url, "0001")
    with writing(bare_url) as connection:
        tables = set(inspect(connection).get_table_names())
        columns = {column["name"] for column in inspect(connection).get_columns("progress")}
        assert connection.execute(select(schema.protocol.c.number)).scalars().all() == [1]
    assert tables == {*schema.metadata.tables, "alembic_version"} - LATER
    assert columns == {column.name for column in schema.progress.c} - {"late_watermark", "closing_watermark"}


@pytest.mark.shows("house", show_3_tables_that_differ_after_an_upgrade=0)
def test_a_fresh_registry_and_an_upgraded_one_are_the_same_table_by_table(bare_url, another_bare_url):
    """Until lately the first migration made whatever its own release declared: such a one must end alike too."""
    database_folder(bare_url)
    with database.engine(bare_url).begin() as connection:
        schema.metadata.create_all(connection)
        connection.execute(insert(schema.protocol).values(number=1))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
    database.upgrade(bare_url)
    database.upgrade(another_bare_url)
    made, fresh = structure(bare_url), structure(another_bare_url)
    made.pop("alembic_version")
    fresh.pop("alembic_version")
    assert made == fresh


def database_folder(url):
    """Make the folder of a registry's file, as `database.upgrade` does."""
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)


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
