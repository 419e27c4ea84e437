"""The chunks of a backfill: cut once, done once each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from rewind.core.offsets import OffsetRange, Ranges
from rewind.registry import schema
from rewind.registry.database import copy_rows, now

_table = schema.chunks


@dataclass(frozen=True)
class Chunk:
    """A recorded part of a backfill.

    Attributes:
        number: Its number in the rewind, from 0, in the order of the offsets.
        wave: The wave it belongs to.
        ranges: Its offsets, per partition.
        state: planned or done.
        rows: Source records it processed, once it is done.
        repeats: Records that the mirror held twice with the same bytes.
    """

    number: int
    wave: int
    ranges: Ranges
    state: str
    rows: int | None
    repeats: int | None


def read(connection: Connection, rewind_id: str) -> list[Chunk]:
    """Return the chunks of a rewind in order."""
    rows = connection.execute(select(_table).where(_table.c.rewind_id == rewind_id).order_by(_table.c.number))
    return [_chunk(row) for row in rows]


def fed(connection: Connection, rewind_id: str) -> list[Chunk]:
    """Return the chunks that hold records, as far as they were counted: a feed has these alone, in this order."""
    return [chunk for chunk in read(connection, rewind_id) if chunk.rows]


def add_wave(connection: Connection, rewind_id: str, wave: int, cut: Sequence[Mapping[int, OffsetRange]]) -> None:
    """Record the chunks of a wave; harmless when the wave is recorded already."""
    mine = _table.c.rewind_id == rewind_id
    if connection.execute(select(_table.c.number).where(mine & (_table.c.wave == wave)).limit(1)).first():
        return
    last = connection.execute(select(func.max(_table.c.number)).where(mine)).scalar()
    first = 0 if last is None else last + 1
    for number, ranges in enumerate(cut, first):
        body = {str(p): [r.start, r.end] for p, r in ranges.items()}
        values = {"rewind_id": rewind_id, "number": number, "wave": wave, "ranges": body, "state": "planned"}
        connection.execute(insert(_table).values(**values))


def forget(connection: Connection, rewind_id: str) -> None:
    """Delete the chunks of a replay, which leaves nothing behind."""
    connection.execute(delete(_table).where(_table.c.rewind_id == rewind_id))


def hand_on(connection: Connection, rewind_id: str, to: str) -> None:
    """Record of a replay the chunks of another, whose feed it goes on with."""
    copy_rows(connection, _table.c.rewind_id, rewind_id, to)


def next_wave(connection: Connection, rewind_id: str) -> int:
    """Return the number of the wave that comes next, from 0."""
    last = connection.execute(select(func.max(_table.c.wave)).where(_table.c.rewind_id == rewind_id)).scalar()
    return 0 if last is None else last + 1


def begin(connection: Connection, rewind_id: str, number: int) -> None:
    """Record that work on a chunk begins."""
    connection.execute(update(_table).where(_one(rewind_id, number)).values(started_at=now()))


def count(connection: Connection, rewind_id: str, number: int, rows: int, repeats: int) -> None:
    """Record what a chunk holds, before it is processed."""
    connection.execute(update(_table).where(_one(rewind_id, number)).values(rows=rows, repeats=repeats))


def finish(connection: Connection, rewind_id: str, number: int, rows: int, repeats: int) -> None:
    """Record that a chunk is done."""
    values = {"state": "done", "rows": rows, "repeats": repeats, "ended_at": now()}
    connection.execute(update(_table).where(_one(rewind_id, number)).values(**values))


def _one(rewind_id: str, number: int) -> Any:
    return (_table.c.rewind_id == rewind_id) & (_table.c.number == number)


def _chunk(row: Row[Any]) -> Chunk:
    ranges = {int(p): OffsetRange(*bounds) for p, bounds in row.ranges.items()}
    return Chunk(row.number, row.wave, ranges, row.state, row.rows, row.repeats)
