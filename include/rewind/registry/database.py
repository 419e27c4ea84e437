"""The registry's connection: SQLite (WAL) by default, PostgreSQL in production, chosen by one URL."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Column, Connection, Engine, create_engine, event, insert, literal, make_url, select
from sqlalchemy.exc import DatabaseError, DBAPIError, DisconnectionError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from rewind.core.errors import RefusedError, RetryError
from rewind.registry.schema import PROTOCOL, protocol

BUSY_MILLISECONDS = 30_000
FROZEN_MILLISECONDS = 10_000
"""How long PostgreSQL waits for the next word of a transaction, which may hold the lock of the one writer: its process
froze, or its host is gone. None waits for anything but the registry, so none that works is silent for so long."""
READS = "rewind_reads"
"""Execution option of a connection: that it only reads."""
PATIENCE = "rewind_patience"
"""Execution option of a connection: for how many milliseconds it waits for the lock of the one writer."""
ASK_AGAIN_SECONDS = (0.000_5, 0.003)
"""Between two attempts to take that lock on SQLite: a transaction takes about a millisecond."""
DAMAGED = ("malformed", "not a database", "no such table")
"""What SQLite says of a file that is torn, overwritten or not a registry."""
RESTORE = "stop the stack and restore its backup"
FULL = ("disk I/O error", "disk is full")
"""What it says when the disk takes nothing more; a file that a torn disk cannot give back sounds the same."""
WRITER_LOCK = 0x726577696E64
"""Key of the advisory lock that a transaction on PostgreSQL takes first: "rewind" in ASCII."""


def engine(url: str) -> Engine:
    """Return the engine of a registry: one a process and URL, which keeps a connection open.

    A process that was forked makes one of its own: a connection must not be shared with the parent, nor even closed.
    """
    return _engine(url, os.getpid())


@lru_cache
def _engine(url: str, _process: int) -> Engine:
    # The connection that a process keeps serves its batches and renewals; a burst of threads opens others for a moment.
    made = create_engine(url, pool_size=1, max_overflow=-1, pool_pre_ping=not url.startswith("sqlite"))
    if made.dialect.name == "sqlite":
        file = made.url.database or ""
        event.listen(made, "connect", partial(_prepare_sqlite, file))
        event.listen(made, "checkout", partial(_refuse_replaced, file))
        event.listen(made, "begin", _begin_on_sqlite)
        event.listen(made, "checkin", _writes_again)  # codespell:ignore checkin
    if made.dialect.name == "postgresql":
        event.listen(made, "begin", _begin_on_postgresql)
    return made


def _prepare_sqlite(file: str, connection: Any, record: ConnectionPoolEntry) -> None:
    # The driver must not open transactions by itself, or BEGIN IMMEDIATE below would come too late.
    connection.isolation_level = None
    # The busy timeout serves this first pragma alone; see _begin_immediate.
    for pragma in (f"busy_timeout={BUSY_MILLISECONDS}", "journal_mode=WAL", "foreign_keys=ON", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("PRAGMA busy_timeout=0")
    record.info["file"] = _identity(file)


def _refuse_replaced(file: str, _connection: Any, record: ConnectionPoolEntry, _proxy: Any) -> None:
    # A backup was restored: a connection to the file that lay there before would write where nobody reads.
    if record.info["file"] != _identity(file):
        raise DisconnectionError


def _identity(file: str) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _writes_again(connection: Any, _record: ConnectionPoolEntry) -> None:
    if connection is not None:
        for pragma in ("query_only=OFF", "busy_timeout=0"):
            connection.execute(f"PRAGMA {pragma}")


def _begin_on_sqlite(connection: Connection) -> None:
    if not _reads(connection):
        _begin_immediate(connection)
        return
    # A reader waits for no writer, but for a process that opens or closes the file at this moment.
    for statement in (f"PRAGMA busy_timeout={BUSY_MILLISECONDS}", "PRAGMA query_only=ON", "BEGIN"):
        connection.exec_driver_sql(statement)


def _begin_immediate(connection: Connection) -> None:
    """Take the write lock first, and wait for it.

    A deferred transaction that reads first and writes later fails at once with "database is locked", whatever the busy
    timeout. SQLite's own wait has no queue and asks the less often the longer somebody has waited, up to every 100 ms:
    under load whoever came last is served first, and one waits for seconds. Everybody asks equally often here.
    """
    begin, ends = "BEGIN IMMEDIATE", time.monotonic() + _patience(connection) / 1_000
    # By the driver itself: through SQLAlchemy an attempt that fails costs far more.
    attempt = connection.connection.cursor()
    while time.monotonic() < ends:
        try:
            attempt.execute(begin)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                break
        else:
            return
        time.sleep(random.uniform(*ASK_AGAIN_SECONDS))  # noqa: S311 - so that no two ask in step
    # Its error is SQLAlchemy's.
    connection.exec_driver_sql(begin)


def _begin_on_postgresql(connection: Connection) -> None:
    if _reads(connection):
        # By default each query of a transaction would see another instant.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {FROZEN_MILLISECONDS}")
        return
    # The same promise as on SQLite: what a transaction reads stays true until it ends (ADR 0008).
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_patience(connection)}")
    connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {FROZEN_MILLISECONDS}")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")


def _reads(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get(READS, False))


def _patience(connection: Connection) -> int:
    asked: int = connection.get_execution_options().get(PATIENCE, BUSY_MILLISECONDS)
    return asked


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """Run the body on the registry as it is at one instant; it waits for no writer, and changes nothing.

    What it read may be out of date when it ends: the `writing` that follows checks again what it relies on.

    Args:
        url: SQLAlchemy URL of the registry.

    Raises:
        RetryError: The registry is away, missing, damaged, or cannot be reached.
    """
    with _transaction(url, {READS: True}) as connection:
        yield connection


@contextmanager
def writing(url: str, patience: int = BUSY_MILLISECONDS) -> Iterator[Connection]:
    """Run the body as the one writer, in one transaction: committed at its end and rolled back on any error.

    Args:
        url: SQLAlchemy URL of the registry.
        patience: Milliseconds to wait for the other writers.

    Raises:
        RetryError: The registry is locked, away, missing, damaged, or cannot be reached.
    """
    with _transaction(url, {PATIENCE: patience}) as connection:
        yield connection


@contextmanager
def _transaction(url: str, options: dict[str, Any]) -> Iterator[Connection]:
    _refuse_missing(url)
    try:
        with engine(url).connect().execution_options(**options) as connection, connection.begin():
            yield connection
    except DatabaseError as error:
        # Its other kinds say that a statement or a value is wrong, not that the registry is, or that it hung up.
        if type(error) not in (DatabaseError, OperationalError) and not error.connection_invalidated:
            raise
        words = said(error)
        raise RetryError(f"registry {shown(url)}: {words}{damage(words)}") from error


def _refuse_missing(url: str) -> None:
    """Check that the file of a registry on SQLite is there: a connection would make an empty one in its place."""
    named = engine(url).url
    if named.get_backend_name() == "sqlite" and named.database and not Path(named.database).exists():
        raise RetryError(f"registry {named.database} is missing: {RESTORE}, or make a new one with `rewind upgrade`")


def shown(url: str) -> str:
    """Return the URL of a registry as a message may show it: without its passwords."""
    address = make_url(url)
    hidden = dict.fromkeys(_secrets(address), "***")
    # As SQLAlchemy shows the one in the user part: without the stars being quoted.
    return address.update_query_dict(hidden).render_as_string().replace("%2A%2A%2A", "***")


def holds_secret(url: str) -> bool:
    """Return whether a password stands in the URL of a registry: in its user part, or in its query."""
    address = make_url(url)
    return address.password is not None or bool(_secrets(address))


def _secrets(address: URL) -> list[str]:
    # `password` and `sslpassword` of libpq; `passfile` names a file.
    return [name for name in address.query if "password" in name.lower()]


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
    config.set_main_option("script_location", str(resources.files("rewind.registry") / "migrations"))
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
    # On SQLite what was written then lies in the file itself, which may be copied.
    made.dispose()


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
