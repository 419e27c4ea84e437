"""Whose a thing is, for those who must not see what is another's."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.registry import generations, nightly_replays, rewinds


def of_rewind(connection: Connection, rewind_id: str) -> str:
    """Return the pipeline of a rewind, which may have no plan yet, or of a nightly replay.

    Raises:
        RefusedError: There is none of that id.
    """
    if (rewind := rewinds.find(connection, rewind_id)) is not None:
        return rewind.pipeline
    if (asked := rewinds.fact(connection, rewind_id, rewinds.ASKED)) is not None:
        return str(asked["pipeline"])
    if (night := nightly_replays.named(connection, rewind_id)) is not None:
        return night.pipeline
    raise RefusedError("rewind_id", f"rewind {rewind_id!r} is unknown", "Look at `python -m rewind status`")


def of_stream(connection: Connection, owner: str, sources: Mapping[str, str]) -> list[str]:
    """Return the pipelines that a stream works for: one for a job, each that reads the topic for a mirror.

    Args:
        connection: To the registry.
        owner: The stream.
        sources: The topic that each pipeline reads.

    Raises:
        RefusedError: No stream has that name.
    """
    if (job := generations.find(connection, owner)) is not None:
        return [job.pipeline]
    topic = names.mirrored_topic(owner)
    return [pipeline for pipeline, source in sources.items() if source == topic]


def refuse_rewind_of_another(connection: Connection, rewind_id: str, pipeline: str) -> None:
    """Check that a rewind is one of a pipeline.

    Raises:
        RefusedError: It is another's, or unknown.
    """
    if of_rewind(connection, rewind_id) != pipeline:
        raise RefusedError("rewind_id", f"{rewind_id!r} is no rewind of {pipeline}", "Use the DAG of its own pipeline")


def refuse_job_of_another(connection: Connection, job_id: str, pipeline: str, field: str) -> Generation:
    """Check that a job is one of a pipeline, and return it.

    Raises:
        RefusedError: It is another's, or unknown.
    """
    found = generations.find(connection, job_id)
    if found is None or found.pipeline != pipeline:
        raise RefusedError(field, f"{job_id!r} is no job of {pipeline}", "Look at `python -m rewind status`")
    return found
