"""Whose a thing is, for those who must not see what is another's."""

from __future__ import annotations

from sqlalchemy import Connection

from rewind.control import generations, nights, rewinds
from rewind.control.status import Status
from rewind.core import names
from rewind.core.errors import RefusedError


def of_rewind(connection: Connection, rewind_id: str) -> str:
    """Return the pipeline of a rewind, which may have no plan yet, or of a nightly replay.

    Raises:
        RefusedError: There is none of that id.
    """
    if (rewind := rewinds.find(connection, rewind_id)) is not None:
        return rewind.pipeline
    if (asked := rewinds.fact(connection, rewind_id, rewinds.ASKED)) is not None:
        return str(asked["pipeline"])
    if (night := nights.named(connection, rewind_id)) is not None:
        return night.pipeline
    raise RefusedError("rewind_id", f"rewind {rewind_id!r} is unknown", "Look at `python -m rewind status`")


def of_stream(connection: Connection, owner: str, found: Status) -> list[str]:
    """Return the pipelines that a stream works for: one for a job, each that reads the topic for a mirror.

    Raises:
        RefusedError: No stream has that name.
    """
    if (job := generations.find(connection, owner)) is not None:
        return [job.pipeline]
    topic = names.mirrored_topic(owner)
    return [view.name for view in found.pipelines if view.source_topic == topic]
