"""What streams have committed, batch by batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import CTE, Connection, Row, Select, Subquery, case, delete, func, insert, select, update

from rewind.core.model import Batch
from rewind.core.offsets import Vector
from rewind.registry import schema
from rewind.registry.database import copy_rows, now, vector_from_json, vector_to_json

_table = schema.progress
_closing = func.coalesce(_table.c.closing_watermark, 0)
"""A batch of an older release has none."""


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


def forget(connection: Connection, owner: str) -> None:
    """Delete what a stream has committed: of a replay, which leaves nothing behind."""
    connection.execute(delete(_table).where(_table.c.owner == owner))


def hand_on(connection: Connection, owner: str, to: str) -> None:
    """Record of a stream that it has committed what another has, whose checkpoint it goes on from."""
    copy_rows(connection, _table.c.owner, owner, to)


def newest(connection: Connection, owner: str) -> Batch | None:
    """Return the last committed batch of a stream, or None before the first."""
    query = select(_table).where(_table.c.owner == owner).order_by(_table.c.batch.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else _batch(row)


def recent(connection: Connection, owner: str, count: int) -> list[Batch]:
    """Return the last batches of a stream, newest first."""
    query = select(_table).where(_table.c.owner == owner).order_by(_table.c.batch.desc()).limit(count)
    return [_batch(row) for row in connection.execute(query)]


def newest_of(connection: Connection, owners: Select[Any]) -> dict[str, Batch]:
    """Return the last committed batches of streams, which a query names, by stream."""
    last = _last(owners)
    joined = select(_table).join(last, (_table.c.owner == last.c.owner) & (_table.c.batch == last.c.batch))
    return {row.owner: _batch(row) for row in connection.execute(joined)}


def counts_since(
    connection: Connection, owners: Select[Any], instant: datetime, most: int
) -> dict[str, list[tuple[datetime, int]]]:
    """Return when the last batches of streams were committed, and with how many rows, newest first, by stream.

    Args:
        connection: To the registry.
        owners: A query that names the streams.
        instant: Older ones are left out, UTC without zone.
        most: So many a stream.
    """
    last = _last(owners)
    mine = (_table.c.owner == last.c.owner) & (_table.c.batch > last.c.batch - most) & (_table.c.at >= instant)
    query = select(_table.c.owner, _table.c.at, _table.c.rows).join(last, mine).order_by(_table.c.batch.desc())
    found: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
    for owner, at, rows in connection.execute(query):
        found[owner].append((at, rows))
    return found


def closing_since(connection: Connection, owners: Select[Any]) -> dict[str, datetime]:
    """Return when the batch was committed that first had the closing watermark of the newest one, by stream.

    Streams without a watermark are left out.
    """
    low = _halved(owners)
    other = _table.alias()
    first = select(func.min(other.c.batch)).where((other.c.owner == low.c.owner) & (other.c.batch >= low.c.low))
    mine = (_table.c.owner == low.c.owner) & (_table.c.batch == first.correlate(low).scalar_subquery())
    query = select(_table.c.owner, _table.c.at).select_from(low.join(_table, mine)).where(low.c.low == low.c.high)
    return {row.owner: row.at for row in connection.execute(query)}


def _last(owners: Select[Any]) -> Subquery:
    named = owners.subquery()
    # By the index, a stream at a time: to group by owner would read all batches there are.
    newest = select(func.max(_table.c.batch)).where(_table.c.owner == named.c.owner).scalar_subquery()
    return select(named.c.owner, newest.label("batch")).subquery()


def _halved(owners: Select[Any]) -> CTE:
    """Return the query that halves the batches of all streams at once: a stream of months has millions of them."""
    last = _last(owners)
    reached = _table.c.closing_watermark.label("reached")
    other = _table.alias()
    lowest = select(func.min(other.c.batch)).where(other.c.owner == last.c.owner).correlate(last).scalar_subquery()
    newest = (_table.c.owner == last.c.owner) & (_table.c.batch == last.c.batch) & (_table.c.closing_watermark > 0)
    first = select(last.c.owner, lowest.label("low"), last.c.batch.label("high"), reached)
    halves = first.select_from(last.join(_table, newest)).cte("halves", recursive=True)
    middle = (halves.c.low + halves.c.high) // 2
    there = _table.alias()
    at_middle = select(func.coalesce(there.c.closing_watermark, 0)).order_by(there.c.batch).limit(1)
    at_middle = at_middle.where((there.c.owner == halves.c.owner) & (there.c.batch >= middle))
    enough = at_middle.correlate(halves).scalar_subquery() >= halves.c.reached
    low, high = case((enough, halves.c.low), else_=middle + 1), case((enough, middle), else_=halves.c.high)
    return halves.union_all(select(halves.c.owner, low, high, halves.c.reached).where(halves.c.low < halves.c.high))


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
    mine = (_table.c.owner == owner) & (_closing <= watermark)
    row = connection.execute(select(_table).where(mine).order_by(_table.c.batch.desc()).limit(1)).one_or_none()
    return None if row is None else _batch(row)


def first_closing_after(connection: Connection, owner: str, watermark: int) -> Batch | None:
    """Return the first batch of a stream whose closing watermark is above an instant (ms), or None."""
    mine = (_table.c.owner == owner) & (_closing > watermark)
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
