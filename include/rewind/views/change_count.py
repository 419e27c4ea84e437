"""Whether anything has changed in the registry: one number, which the database itself counts on with each change."""

from __future__ import annotations

from sqlalchemy import select

from rewind.core.errors import RefusedError, RetryError
from rewind.registry import schema
from rewind.registry.snapshot import snapshot


def number(url: str) -> int | None:
    """Return how much has been changed in a registry so far; None when that is not to be read, or not counted.

    Renewals of leases are not counted: they come all the time, and nothing shows them.

    Args:
        url: SQLAlchemy URL of the registry.
    """
    try:
        with snapshot(url) as connection:
            return connection.execute(select(schema.changes.c.number)).scalar_one_or_none()
    except (RefusedError, RetryError):
        return None
