"""What streams have committed, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from rewind.control import schema
from rewind.control.database import now, vector_from_json, vector_to_json
from rewind.core.offsets import Vector
from rewind.core.world import Batch

_table = schema.progress


def record(connection: Connection, owner: str, token: int, made: Batch) -> None:
    """Record a committed batch; again is harmless."""
    mine = (_table.c.owner == owner) & (_table.c.batch == made.batch)
    values = {
        "start": vector_to_json(made.start),
        "end": vector_to_json(made.end),
        "rows": made.rows,
        "late_watermark": made.late_watermark,
        "closing_watermark": made.closing_watermark,
    }
    if connection.execute(update(_table).where(mine).values(**values)).rowcount == 0:
        values |= {"owner": owner, "batch": made.batch, "token": token, "at": now()}
        connection.execute(insert(_table).values(**values))


def newest(connection: Connection, owner: str) -> Batch | None:
    """Return the last committed batch of a stream, or None before the first."""
    query = select(_table).where(_table.c.owner == owner).order_by(_table.c.batch.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else _batch(row)


def recent(connection: Connection, owner: str, count: int) -> list[Batch]:
    """Return the last batches of a stream, newest first."""
    query = select(_table).where(_table.c.owner == owner).order_by(_table.c.batch.desc()).limit(count)
    return [_batch(row) for row in connection.execute(query)]


def first_where(connection: Connection, owner: str, condition: Callable[[Batch], bool]) -> Batch | None:
    """Return the first batch of a stream for which a condition holds that then holds for all later ones, or None."""
    mine = _table.c.owner == owner
    low, high = connection.execute(select(func.min(_table.c.batch), func.max(_table.c.batch)).where(mine)).one()
    found = None
    # By halves: a stream of months has millions of batches.
    while low is not None and low <= high:
        middle = (low + high) // 2
        row = connection.execute(
            select(_table).where(mine & (_table.c.batch >= middle)).order_by(_table.c.batch).limit(1)
        ).one()
        if condition(batch := _batch(row)):
            found, high = batch, middle - 1
        else:
            low = batch.batch + 1
    return found


def last_closing(connection: Connection, owner: str, watermark: int) -> Batch | None:
    """Return the newest batch of a stream whose closing watermark is at or below an instant (ms), or None."""
    mine = (_table.c.owner == owner) & (_table.c.closing_watermark <= watermark)
    row = connection.execute(select(_table).where(mine).order_by(_table.c.batch.desc()).limit(1)).one_or_none()
    return None if row is None else _batch(row)


def first_closing_after(connection: Connection, owner: str, watermark: int) -> Batch | None:
    """Return the first batch of a stream whose closing watermark is above an instant (ms), or None."""
    mine = (_table.c.owner == owner) & (_table.c.closing_watermark > watermark)
    row = connection.execute(select(_table).where(mine).order_by(_table.c.batch).limit(1)).one_or_none()
    return None if row is None else _batch(row)


def rises(connection: Connection, owner: str, since: int) -> list[Batch]:
    """Return the batches of a stream, in order, whose watermark for late rows is at or above an instant and has risen.

    Args:
        connection: To the registry.
        owner: The stream.
        since: Milliseconds since 1970.
    """
    query = select(_table).where((_table.c.owner == owner) & (_table.c.late_watermark >= since))
    found: list[Batch] = []
    for row in connection.execute(query.order_by(_table.c.batch)):
        if not found or row.late_watermark > found[-1].late_watermark:
            found.append(_batch(row))
    return found


def position(connection: Connection, owner: str, handoff: Vector | None) -> Vector:
    """Return the next offset a stream will read: the end of its last batch, else its handoff."""
    last = newest(connection, owner)
    return {**(handoff or {}), **(last.end if last else {})}


def _batch(row: Row[Any]) -> Batch:
    return Batch(
        batch=row.batch,
        start=vector_from_json(row.start),
        end=vector_from_json(row.end),
        rows=row.rows,
        at=row.at,
        # A batch of an older release has none.
        late_watermark=row.late_watermark or 0,
        closing_watermark=row.closing_watermark or 0,
    )
