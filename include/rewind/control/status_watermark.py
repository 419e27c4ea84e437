"""The part of the view that shows how far a job with state has closed its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select

from rewind.control import progress
from rewind.core.times import format_instant
from rewind.core.world import Batch

STILL = timedelta(minutes=1)
"""A watermark that has not risen for longer is told to be stuck."""


@dataclass(frozen=True)
class Watermark:
    """The watermark of a job: results that end at or before it are closed.

    Attributes:
        at: The watermark, UTC.
        since: When the batch that raised it so far was committed, UTC.
        stuck: Whether that is so long ago that open results wait: only a record of later event time closes them.
    """

    at: datetime
    since: datetime
    stuck: bool

    def told(self) -> str:
        """Return one sentence while it stands still; empty while it moves."""
        if not self.stuck:
            return ""
        since = format_instant(self.since.replace(tzinfo=UTC))
        return (
            f"watermark stuck since {since} at {format_instant(self.at)}: what ends later stays open until a record of "
            "later event time comes"
        )


def watermarks_of(
    connection: Connection, jobs: Select[Any], newest: Mapping[str, Batch], now: datetime
) -> dict[str, Watermark]:
    """Return the watermarks of jobs, by job; those that keep no state, or have not read a record yet, have none.

    Args:
        connection: To the registry.
        jobs: A query that names the jobs.
        newest: The last batch of each job.
        now: The instant that ages are counted to, UTC without zone as the registry stores it.
    """
    raised = progress.closing_since(connection, jobs)
    return {job: _watermark(newest[job].closing_watermark, since, now) for job, since in raised.items()}


def _watermark(reached: int, since: datetime, now: datetime) -> Watermark:
    return Watermark(datetime.fromtimestamp(reached / 1000, UTC), since, now - since > STILL)
