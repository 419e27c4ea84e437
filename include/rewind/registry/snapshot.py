"""Read the registry without ever making, locking or changing it: for views, readers and the pointer server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from rewind.core.errors import RefusedError, RetryError
from rewind.registry.database import damage, said, shown

BUSY_MILLISECONDS = 2_000
"""A view should say that the registry is locked rather than hang as long as a writer would wait."""

EMPTY_CURE = "Start the stack with `make up`, then deploy a pipeline"


@contextmanager
def snapshot(url: str) -> Iterator[Connection]:
    """Run the body on one consistent, read-only view of the registry.

    Raises:
        RefusedError: There is no registry yet, or no table in it.
        RetryError: It is locked, or cannot be reached.
    """
    _refuse_absent(url)
    try:
        with _engine(url).connect() as connection:
            yield connection
    except DBAPIError as error:
        raise _reaction(url, error) from error


@lru_cache
def _engine(url: str) -> Engine:
    address = make_url(url)
    if address.get_backend_name() != "sqlite":
        # By default each query of a transaction would see another instant.
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        return create_engine(url, poolclass=NullPool, execution_options=options)
    # `mode=rw` opens what is there and creates nothing; the file form of the name is what takes options.
    file = quote(str(Path(address.database or "").resolve()))
    made = create_engine(f"sqlite:///file:{file}?mode=rw&uri=true", poolclass=NullPool)
    event.listen(made, "connect", _prepare)
    # The driver begins no transaction for a SELECT, and without one each query would see another instant.
    event.listen(made, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return made


def _prepare(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_MILLISECONDS}", "query_only=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _refuse_absent(url: str) -> None:
    address = make_url(url)
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        raise RefusedError("registry", f"there is none at {address.database}", EMPTY_CURE)


def _reaction(url: str, error: DBAPIError) -> Exception:
    text = said(error)
    if "no such table" in text or "UndefinedTable" in type(error.orig).__name__:
        return RefusedError("registry", "it is empty", EMPTY_CURE)
    return RetryError(f"registry {shown(url)}: {text}{damage(text)}")
