"""The part of the view that shows generations one by one: when each was live, and what each owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from rewind.control import generations, manifest, schema
from rewind.control.database import now as registry_now
from rewind.control.manifest import Entry
from rewind.control.status_jobs import Ends, Job, jobs_of
from rewind.core.errors import RefusedError


@dataclass(frozen=True)
class GenerationView:
    """A generation or a repair with its history.

    Attributes:
        job: What it is and where it stands.
        epochs: Epochs of the pointer that began with it, oldest first.
        rewind_id: The rewind that made it; None for one that was deployed.
        owns: What its manifest lists.
    """

    job: Job
    epochs: tuple[int, ...]
    rewind_id: str | None
    owns: tuple[Entry, ...]


def generations_of(
    connection: Connection, pipeline: str, ends: Ends, now: datetime | None = None
) -> tuple[GenerationView, ...]:
    """Return all generations and repairs that a pipeline ever had, oldest first.

    Raises:
        RefusedError: It never had one.
    """
    jobs = jobs_of(connection, pipeline, ends, now or registry_now())
    if not jobs:
        raise RefusedError("pipeline", f"{pipeline!r} has no generation", "Look at `python -m rewind status`")
    switches = _switches(connection, pipeline)
    return tuple(_view(connection, job, switches) for job in jobs)


def _view(connection: Connection, job: Job, switches: Sequence[tuple[int, str]]) -> GenerationView:
    epochs = tuple(epoch for epoch, job_id in switches if job_id == job.job_id)
    owns = tuple(manifest.read(connection, job.job_id))
    return GenerationView(job, epochs, generations.rewind_of(connection, job.job_id), owns)


def _switches(connection: Connection, pipeline: str) -> list[tuple[int, str]]:
    """Return the epochs of a pipeline with the job that each began with, oldest first."""
    told, pointer = schema.announcements, schema.pointers
    rows = connection.execute(select(told.c.epoch, told.c.body).where(told.c.pipeline == pipeline))
    found = {row.epoch: str(row.body["job_id"]) for row in rows}
    # What is live now counts even where nothing was announced of it.
    now = connection.execute(select(pointer.c.epoch, pointer.c.job_id).where(pointer.c.pipeline == pipeline))
    return sorted((found | {row.epoch: row.job_id for row in now}).items())
