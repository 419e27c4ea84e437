"""How many records a stream has read a second, over time, from the batches that it recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from rewind.core.model import Batch
from rewind.registry import progress

BATCHES = 1_000
POINTS = 120


@dataclass(frozen=True)
class Throughput:
    """Records a second up to an instant, UTC."""

    at: datetime
    rate: float


def throughput(connection: Connection, job_id: str) -> list[Throughput]:
    """Return how fast a stream was during its last batches, oldest first, at most `POINTS` points."""
    return of(progress.recent(connection, job_id, BATCHES)[::-1])


def of(batches: Sequence[Batch]) -> list[Throughput]:
    """Return the same of batches, oldest first; the first one only says when counting began."""
    width = -(-max(len(batches) - 1, 1) // POINTS)
    found = []
    # From the end, so that the newest group is whole.
    for last in range(len(batches) - 1, 0, -width):
        first = max(0, last - width)
        seconds = (batches[last].at - batches[first].at).total_seconds()
        rows = sum(batch.rows for batch in batches[first + 1 : last + 1])
        if seconds > 0:
            found.append(Throughput(batches[last].at, round(rows / seconds, 1)))
    return found[::-1]
