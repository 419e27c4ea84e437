"""The part of the view that shows generations one by one: when each was live, and what each owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from rewind.core.errors import RefusedError
from rewind.registry import manifest, schema
from rewind.registry.database import now as registry_now
from rewind.registry.manifest import Entry
from rewind.registry.snapshot import snapshot
from rewind.views.status_jobs import Ends, Job, Jobs


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


def generations_of(url: str, pipeline: str, ends: Ends, now: datetime | None = None) -> tuple[GenerationView, ...]:
    """Return all generations and repairs that a pipeline ever had, oldest first.

    Raises:
        RefusedError: It never had one.
    """
    table = schema.generations
    mine = table.c.pipeline == pipeline
    with snapshot(url) as connection:
        read = Jobs(connection, now or registry_now(), pipeline=pipeline)
        switches = _switches(connection, pipeline)
        rows = connection.execute(select(table.c.job_id, table.c.rewind_id).where(mine))
        makers = {row.job_id: row.rewind_id for row in rows}
        owned = manifest.read_all(connection, select(table.c.job_id).where(mine))
    jobs = read.by_pipeline(ends).get(pipeline, ())
    if not jobs:
        raise RefusedError("pipeline", f"{pipeline!r} has no generation", "Look at `python -m rewind status`")
    return tuple(_view(job, switches, makers[job.job_id], owned.get(job.job_id, [])) for job in jobs)


def _view(job: Job, switches: Sequence[tuple[int, str]], maker: str | None, owned: Sequence[Entry]) -> GenerationView:
    epochs = tuple(epoch for epoch, job_id in switches if job_id == job.job_id)
    return GenerationView(job, epochs, maker, tuple(owned))


def _switches(connection: Connection, pipeline: str) -> list[tuple[int, str]]:
    """Return the epochs of a pipeline with the job that each began with, oldest first."""
    told, pointer = schema.announcements, schema.pointers
    rows = connection.execute(select(told.c.epoch, told.c.body).where(told.c.pipeline == pipeline))
    found = {row.epoch: str(row.body["job_id"]) for row in rows}
    # What is live now counts even where nothing was announced of it.
    now = connection.execute(select(pointer.c.epoch, pointer.c.job_id).where(pointer.c.pipeline == pipeline))
    return sorted((found | {row.epoch: row.job_id for row in now}).items())
