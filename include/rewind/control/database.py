"""The registry's connection: SQLite (WAL) by default, PostgreSQL in production, chosen by one URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from rewind.control.schema import PROTOCOL, protocol
from rewind.core.errors import RefusedError, RetryError

BUSY_MILLISECONDS = 30_000
WRITER_LOCK = 0x726577696E64
"""Key of the advisory lock that a transaction on PostgreSQL takes first: "rewind" in ASCII."""


@lru_cache
def engine(url: str) -> Engine:
    """Return the engine of a registry, one a process and URL.

    Connections are not pooled: SQLite files are cheap to open, and forked Airflow workers must share none.
    """
    made = create_engine(url, poolclass=NullPool)
    if made.dialect.name == "sqlite":
        event.listen(made, "connect", _prepare_sqlite)
        event.listen(made, "begin", _begin_immediate)
    if made.dialect.name == "postgresql":
        event.listen(made, "begin", _begin_alone)
    return made


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not open transactions by itself, or BEGIN IMMEDIATE below would come too late.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", f"busy_timeout={BUSY_MILLISECONDS}", "foreign_keys=ON", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: Connection) -> None:
    # A deferred transaction that reads first and writes later fails at once with "database is locked",
    # whatever the busy timeout; taking the write lock first makes it wait.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_alone(connection: Connection) -> None:
    # The same promise as on SQLite: what a transaction reads stays true until it ends (ADR 0008).
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {BUSY_MILLISECONDS}")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")


@contextmanager
def transaction(url: str) -> Iterator[Connection]:
    """Run the body in one transaction, committed at its end and rolled back on any error.

    Raises:
        RetryError: The registry is locked, away, or cannot be reached.
    """
    try:
        with engine(url).begin() as connection:
            yield connection
    except OperationalError as error:
        raise RetryError(f"registry {engine(url).url.render_as_string()}: {error.orig}") from error


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


def now() -> datetime:
    """Return the current instant as the registry stores it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def vector_to_json(vector: dict[int, int]) -> dict[str, int]:
    """Return a vector with the text keys that JSON allows."""
    return {str(p): o for p, o in sorted(vector.items())}


def vector_from_json(body: dict[str, int] | None) -> dict[int, int]:
    """Return the vector of a JSON column; empty for null."""
    return {int(p): o for p, o in (body or {}).items()}
