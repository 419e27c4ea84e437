"""The part of the view that shows what is still to be deleted, and why it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from rewind.core import lifecycle
from rewind.registry import manifest, rewinds, schema
from rewind.registry.manifest import Entry
from rewind.runtime.collect import COLLECTABLE
from rewind.views.status_jobs import Job

ENDING = (lifecycle.STANDBY, *COLLECTABLE)


@dataclass(frozen=True)
class Garbage:
    """What is left of a job that is no longer needed.

    Attributes:
        job_id: The job.
        state: Its state.
        due_at: When it may be deleted, UTC; None for at once.
        things: Kind and name of each thing.
        waits: Why it is still there.
    """

    job_id: str
    state: str
    due_at: datetime | None
    things: tuple[tuple[str, str], ...]
    waits: str


class Leftovers:
    """What the registry holds of standbys and ended jobs, read once for all of them."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        """Read it."""
        table = schema.generations
        ending = select(table.c.job_id).where(table.c.state.in_(ENDING))
        self._entries = manifest.read_all(connection, ending)
        self._watched = rewinds.watched_standbys(connection)
        self._now = now

    def of(self, jobs: Sequence[Job]) -> tuple[Garbage, ...]:
        """Return what is left of those of some jobs that are no longer needed, with when it may go."""
        ending = [(job, self._entries.get(job.job_id, [])) for job in jobs if job.state in ENDING]
        found = (_garbage(job, entries, job.job_id in self._watched, self._now) for job, entries in ending)
        return tuple(garbage for garbage in found if garbage.things)


def _garbage(job: Job, entries: Sequence[Entry], watched: bool, now: datetime) -> Garbage:
    things = tuple((e.kind, e.name) for e in entries if e.state != manifest.DELETED)
    due_at = job.grace_until if job.state == lifecycle.STANDBY else None
    return Garbage(job.job_id, job.state, due_at, things, _why_kept(job, watched, now))


def _why_kept(job: Job, watched: bool, now: datetime) -> str:
    running = {"alive": "runs", "draining": "drains", "starting": "is starting", "orphan": "is an orphan"}
    if job.state == lifecycle.STANDBY and job.grace_until is not None and job.grace_until > now:
        return f"kept for a rollback until {job.grace_until:%Y-%m-%d %H:%M:%S}Z"
    if job.state == lifecycle.STANDBY and watched:
        return "kept until the rewind that replaced it has ended"
    if job.driver.state in running:
        return f"its driver {running[job.driver.state]}"
    return "due: the next run of collect_garbage takes it"
