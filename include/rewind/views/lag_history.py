"""How far one stream was behind another, over time, from the batches that both recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from rewind.core.model import Batch
from rewind.core.offsets import Vector, behind
from rewind.registry import progress

BATCHES = 1_000
POINTS = 120


@dataclass(frozen=True)
class Lag:
    """How many offsets a stream lacked to reach another at an instant, UTC."""

    at: datetime
    offsets: int


def lag_history(connection: Connection, job_id: str, other: str, handoff: Vector) -> list[Lag]:
    """Return how far a job was behind another since its first batch, oldest first, at most `POINTS` points.

    Args:
        connection: To the registry.
        job_id: The job.
        other: The job that it follows.
        handoff: Where the job's stream started.
    """
    mine = progress.recent(connection, job_id, BATCHES)[::-1]
    theirs = progress.recent(connection, other, BATCHES)[::-1]
    return _thinned(_lags(mine, theirs, handoff))


def _lags(mine: Sequence[Batch], theirs: Sequence[Batch], handoff: Vector) -> list[Lag]:
    position, ahead, found = dict(handoff), dict(handoff), []
    waiting = list(theirs)[::-1]
    for batch in mine:
        while waiting and waiting[-1].at <= batch.at:
            ahead |= waiting.pop().end
        position |= batch.end
        found.append(Lag(batch.at, behind(position, ahead)))
    return found


def _thinned(found: list[Lag]) -> list[Lag]:
    step = -(-len(found) // POINTS) or 1
    # From the end, so that the newest is always there.
    return found[::-1][::step][::-1]
