"""The part of the view that shows how far a job with state has closed its results."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from rewind.control import progress
from rewind.core.times import format_instant

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


def watermark_of(connection: Connection, job_id: str, now: datetime) -> Watermark | None:
    """Return the watermark of a job, or None when it has none: it keeps no state, or has not read a record yet.

    Args:
        connection: To the registry.
        job_id: The job.
        now: The instant that ages are counted to, UTC without zone as the registry stores it.
    """
    newest = progress.newest(connection, job_id)
    if newest is None or not newest.closing_watermark:
        return None
    reached = newest.closing_watermark
    raised = progress.first_where(connection, job_id, lambda batch: batch.closing_watermark >= reached) or newest
    return Watermark(datetime.fromtimestamp(reached / 1000, UTC), raised.at, now - raised.at > STILL)
