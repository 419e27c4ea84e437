"""The registry's connection: SQLite (WAL) by default, PostgreSQL in production, chosen by one URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, create_engine, event, insert, literal, select
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from rewind.control.schema import PROTOCOL, protocol
from rewind.core.errors import RefusedError, RetryError

BUSY_MILLISECONDS = 30_000
DAMAGED = ("malformed", "not a database", "no such table")
"""What SQLite says of a file that is torn, overwritten or not a registry."""
RESTORE = "stop the stack and restore its backup"
FULL = ("disk I/O error", "disk is full")
"""What it says when the disk takes nothing more; a file that a torn disk cannot give back sounds the same."""
WRITER_LOCK = 0x726577696E64
"""Key of the advisory lock that a transaction on PostgreSQL takes first: "rewind" in ASCII."""


@lru_cache
def engine(url: str, patience: int = BUSY_MILLISECONDS) -> Engine:
    """Return the engine of a registry, one a process, URL and patience with locks, in milliseconds.

    Connections are not pooled: SQLite files are cheap to open, and forked Airflow workers must share none.
    """
    made = create_engine(url, poolclass=NullPool)
    if made.dialect.name == "sqlite":
        event.listen(made, "connect", partial(_prepare_sqlite, patience))
        event.listen(made, "begin", _begin_immediate)
    if made.dialect.name == "postgresql":
        event.listen(made, "begin", partial(_begin_alone, patience))
    return made


def _prepare_sqlite(patience: int, connection: Any, _record: Any) -> None:
    # The driver must not open transactions by itself, or BEGIN IMMEDIATE below would come too late.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", f"busy_timeout={patience}", "foreign_keys=ON", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: Connection) -> None:
    # A deferred transaction that reads first and writes later fails at once with "database is locked",
    # whatever the busy timeout; taking the write lock first makes it wait.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_alone(patience: int, connection: Connection) -> None:
    # The same promise as on SQLite: what a transaction reads stays true until it ends (ADR 0008).
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {patience}")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")


@contextmanager
def transaction(url: str, patience: int = BUSY_MILLISECONDS) -> Iterator[Connection]:
    """Run the body in one transaction, committed at its end and rolled back on any error.

    Args:
        url: SQLAlchemy URL of the registry.
        patience: Milliseconds to wait for a lock.

    Raises:
        RetryError: The registry is locked, away, missing, damaged, or cannot be reached.
    """
    _refuse_missing(url)
    try:
        with engine(url, patience).begin() as connection:
            yield connection
    except DatabaseError as error:
        # Its other kinds say that a statement or a value is wrong, not that the registry is.
        if type(error) not in (DatabaseError, OperationalError):
            raise
        words = said(error)
        raise RetryError(f"registry {engine(url).url.render_as_string()}: {words}{damage(words)}") from error


def _refuse_missing(url: str) -> None:
    """Check that the file of a registry on SQLite is there: a connection would make an empty one in its place."""
    named = engine(url).url
    if named.get_backend_name() == "sqlite" and named.database and not Path(named.database).exists():
        raise RetryError(f"registry {named.database} is missing: {RESTORE}, or make a new one with `rewind upgrade`")


def said(error: DBAPIError) -> str:
    """Return the first line of what a database said: PostgreSQL adds a hint, or where in the statement it was."""
    return str(error.orig).strip().partition("\n")[0]


def damage(text: str) -> str:
    """Return the cure to add to a database's words, when they say that its file or disk is at fault; else nothing."""
    if any(sign in text for sign in FULL):
        return f": its disk is full or fails; free some of it. If that is not it, {RESTORE}"
    return f": it is damaged; {RESTORE}" if any(sign in text for sign in DAMAGED) else ""


def upgrade(url: str) -> None:
    """Bring the registry to this code's schema; harmless when it is there already.

    Raises:
        RefusedError: A newer release has migrated it further than this one knows.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    made = engine(url)
    if made.dialect.name == "sqlite" and made.url.database:
        Path(made.url.database).parent.mkdir(parents=True, exist_ok=True)
    config = Config()
    config.set_main_option("script_location", str(resources.files("rewind.control") / "migrations"))
    with made.connect() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as unknown:
            if "locate revision" not in str(unknown):
                raise
            cure = "Use that release, or restore a backup made before it"
            raise RefusedError("registry", f"was migrated by a newer release ({unknown})", cure) from unknown
        connection.commit()


def check_protocol(connection: Connection) -> None:
    """Check that this code may write to the registry.

    Raises:
        RefusedError: The registry has been made for newer code.
    """
    number = connection.execute(select(protocol.c.number)).scalar_one()
    if number > PROTOCOL:
        cure = "Rewind the pipeline with same_code, so that it gets a bundle of the installed release"
        raise RefusedError("registry", f"speaks protocol {number}, this bundle {PROTOCOL}", cure)


def copy_rows(connection: Connection, owner: Column[str], of: str, to: str) -> None:
    """Insert the rows of one owner once more for another."""
    others = [column for column in owner.table.columns if column is not owner]
    rows = select(literal(to), *others).where(owner == of)
    connection.execute(insert(owner.table).from_select([owner, *others], rows))


def now() -> datetime:
    """Return the current instant as the registry stores it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def vector_to_json(vector: dict[int, int]) -> dict[str, int]:
    """Return a vector with the text keys that JSON allows."""
    return {str(p): o for p, o in sorted(vector.items())}


def vector_from_json(body: dict[str, int] | None) -> dict[int, int]:
    """Return the vector of a JSON column; empty for null."""
    return {int(p): o for p, o in (body or {}).items()}
