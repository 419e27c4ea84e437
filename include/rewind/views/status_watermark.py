"""The part of the view that shows how far a job with state has closed its results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select

from rewind.core.model import Batch
from rewind.core.times import format_instant
from rewind.registry import progress

FED = "Records come in, but none of later event time: fix the producers' clocks, or what logic.py takes as event time"
SILENT = "No records come in: look at the producers; one record of the present time in each partition closes the rest"
STILL = timedelta(minutes=1)
"""A watermark that has not risen for longer is told to be stuck."""


@dataclass(frozen=True)
class Watermark:
    """The watermark of a job: results that end at or before it are closed.

    Attributes:
        at: The watermark, UTC.
        since: When the batch that raised it so far was committed, UTC.
        stuck: Whether that is so long ago that open results wait: only a record of later event time closes them.
        fed: Whether records came in during the last minute nevertheless.
    """

    at: datetime
    since: datetime
    stuck: bool
    fed: bool = False

    def told(self) -> str:
        """Return one sentence while it stands still; empty while it moves."""
        if not self.stuck:
            return ""
        since = format_instant(self.since.replace(tzinfo=UTC))
        return (
            f"watermark stuck since {since} at {format_instant(self.at)}: what ends later stays open until a record of "
            f"later event time comes. {FED if self.fed else SILENT}"
        )


def watermarks_of(
    connection: Connection, jobs: Select[Any], newest: Mapping[str, Batch], fed: Collection[str], now: datetime
) -> dict[str, Watermark]:
    """Return the watermarks of jobs, by job; those that keep no state, or have not read a record yet, have none.

    Args:
        connection: To the registry.
        jobs: A query that names the jobs.
        newest: The last batch of each job.
        fed: The jobs that have read records in the last minute.
        now: The instant that ages are counted to, UTC without zone as the registry stores it.
    """
    raised = progress.closing_since(connection, jobs)
    return {
        job: Watermark(
            at=datetime.fromtimestamp(newest[job].closing_watermark / 1000, UTC),
            since=since,
            stuck=now - since > STILL,
            fed=job in fed,
        )
        for job, since in raised.items()
    }
