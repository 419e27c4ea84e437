"""The part of the view that shows how far a backfill has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rewind.views.status_steps import DONE


@dataclass(frozen=True)
class Backfill:
    """How far a backfill has come.

    Attributes:
        chunks_done: Chunks that are done.
        chunks: Chunks cut so far; a further wave adds some.
        records_done: Source records processed.
        offsets: Offsets that all chunks span.
        offsets_done: Offsets that the finished ones span.
        rate: Records a second, pauses included; None before the first chunk is done.
        seconds_left: Estimate of the time to the end of the last chunk cut; None without a rate.
        paused: Whether it is paused.
        records_per_second: Its limit; None without one.
        partitions: Per partition the offsets that are done, and those that all chunks span.
    """

    chunks_done: int
    chunks: int
    records_done: int
    offsets: int
    offsets_done: int
    rate: float | None
    seconds_left: float | None
    paused: bool
    records_per_second: int | None
    partitions: Mapping[int, tuple[int, int]]


def backfill_of(rows: Sequence[Any], controls: tuple[bool, int | None], now: datetime) -> Backfill | None:
    """Return how far a backfill has come, or None before its first wave.

    Args:
        rows: Its chunks, as their table has them.
        controls: Whether it is paused, and its limit in records per second.
        now: The instant that times are counted to, UTC without zone.
    """
    if not rows:
        return None
    done = [row for row in rows if row.state == DONE]
    offsets, offsets_done = sum(map(_span, rows)), sum(map(_span, done))
    begun = min((row.started_at for row in rows if row.started_at is not None), default=now)
    until = now if len(done) < len(rows) else max(row.ended_at for row in done)
    seconds = (until - begun).total_seconds()
    records = sum(row.rows or 0 for row in done)
    rate = records / seconds if done and seconds > 0 else None
    speed = offsets_done / seconds if done and seconds > 0 else 0.0
    return Backfill(
        chunks_done=len(done),
        chunks=len(rows),
        records_done=records,
        offsets=offsets,
        offsets_done=offsets_done,
        rate=None if rate is None else round(rate, 1),
        seconds_left=round((offsets - offsets_done) / speed, 1) if speed else None,
        paused=controls[0],
        records_per_second=controls[1],
        partitions=_by_partition(rows),
    )


def _by_partition(rows: Iterable[Any]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        for partition, (start, end) in row.ranges.items():
            done, span = found.get(int(partition), (0, 0))
            found[int(partition)] = (done + (end - start if row.state == DONE else 0), span + end - start)
    return dict(sorted(found.items()))


def _span(row: Any) -> int:
    return sum(end - start for start, end in row.ranges.values())
