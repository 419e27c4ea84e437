"""The way back after a switch: the standby becomes live again, by one more compare-and-set of the pointer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from rewind.core import lifecycle
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.model import Generation
from rewind.core.offsets import Vector
from rewind.core.planning.consumer_groups import Sides
from rewind.registry import generations, leases, progress, rewinds, streams
from rewind.registry.database import now
from rewind.runtime import announce, consumer_groups

FACT, TARGET = "rollback", "rollback.target"


@dataclass(frozen=True)
class Target:
    """What a rollback is about.

    Attributes:
        pipeline: The pipeline.
        live_job_id: The job that is live now.
        standby_job_id: The job that becomes live again.
        epoch: The pointer's epoch now.
    """

    pipeline: str
    live_job_id: str
    standby_job_id: str
    epoch: int

    def told(self) -> str:
        """Return one line for a log."""
        return f"{self.pipeline}: from {self.live_job_id} at epoch {self.epoch} back to {self.standby_job_id}"


def find(connection: Connection, pipeline: str, wanted: str = "") -> Target:
    """Return what a rollback of a pipeline would do now.

    Args:
        connection: A transaction.
        pipeline: The pipeline.
        wanted: The job to go back to; empty for the one that stands by.

    Raises:
        RefusedError: Nothing is live, nothing stands by, or what stands by is being retired or has no driver.
    """
    found = generations.live(connection, pipeline)
    if found is None:
        raise RefusedError("pipeline", f"{pipeline!r} has no live job", f"Deploy it with the DAG deploy_{pipeline}")
    live, epoch = found
    kept = [job for job in generations.in_state(connection, pipeline, lifecycle.STANDBY) if _kept(connection, job)]
    chosen = [job for job in kept if not wanted or job.job_id == wanted]
    if not chosen:
        problem = f"{wanted} is not standby" if wanted else f"{pipeline} has no standby"
        raise RefusedError("to", f"{problem}, or its grace period is over", "Rewind the pipeline to answer again")
    # A new cut-over ends the grace of all but the newest, so that there is one; the newest is the last made.
    standby = chosen[-1]
    _check_running(connection, standby.job_id)
    return Target(pipeline, live.job_id, standby.job_id, epoch)


def fixed(connection: Connection, rollback_id: str, pipeline: str, wanted: str = "") -> Target:
    """Return the target of a rollback, decided once: a repeat goes to no other job.

    Raises:
        RefusedError: As `find`.
    """
    stored = rewinds.fact(connection, rollback_id, TARGET)
    if stored is None:
        stored = rewinds.fix(connection, rollback_id, TARGET, asdict(find(connection, pipeline, wanted)))
    return Target(**stored)


def groups(connection: Connection, target: Target) -> list[str]:
    """Return the consumer groups that a switch moved to what is live now: a rollback moves them back."""
    return consumer_groups.moved_to(connection, target.live_job_id)


def sides(connection: Connection, target: Target) -> Sides:
    """Return between which outputs a rollback moves consumer groups."""
    return Sides(*(generations.read(connection, job) for job in (target.live_job_id, target.standby_job_id)))


def done(connection: Connection, rollback_id: str) -> dict[str, Any] | None:
    """Return what a rollback did, or None before it did."""
    stored: dict[str, Any] | None = rewinds.fact(connection, rollback_id, FACT)
    return stored


def positions(connection: Connection, target: Target) -> tuple[Vector, Vector]:
    """Return the source positions of the standby and of the live job."""
    jobs = [generations.read(connection, job) for job in (target.standby_job_id, target.live_job_id)]
    standby, live = (progress.position(connection, job.job_id, job.handoff) for job in jobs)
    return standby, live


def switch(connection: Connection, rollback_id: str, target: Target, reason: str, grace: timedelta) -> dict[str, Any]:
    """Move the pointer back, end the rewind that is still being watched, and prepare the announcement.

    Args:
        connection: One transaction for all of it.
        rollback_id: The rollback.
        target: What was decided.
        reason: Why, for the history.
        grace: How long the job that is left is kept, so that the way forward stays open.

    Raises:
        WorldMovedError: The pointer is elsewhere.
        RefusedError: The standby is being retired, or has no driver.
    """
    if find(connection, target.pipeline, target.standby_job_id) != target:
        raise WorldMovedError("pipeline", f"the pointer of {target.pipeline} has moved", "Look, and roll back again")
    old, new = target.live_job_id, target.standby_job_id
    epoch = generations.switch(connection, target.pipeline, old, new, target.epoch, grace)
    generations.set_grace(connection, new, None)
    generations.end_older_standbys(connection, target.pipeline, old)
    announce.prepare(connection, target.pipeline, epoch, old, new)
    ended = _end_rewind(connection, old)
    made = {"epoch": epoch, "from": old, "to": new, "rewind_id": ended, "reason": reason}
    stored: dict[str, Any] = rewinds.fix(connection, rollback_id, FACT, made)
    return stored


def _kept(connection: Connection, job: Generation) -> bool:
    until = generations.grace_until(connection, job.job_id)
    return (until is not None and until > now()) or job.job_id in rewinds.watched_standbys(connection)


def _check_running(connection: Connection, job_id: str) -> None:
    stream, lease = streams.read(connection, job_id), leases.read(connection, job_id)
    if stream is None or stream.wish != streams.RUN:
        problem = f"{job_id} has been asked to drain"
    elif lease is None or lease.holder is None or not leases.alive(lease.holder):
        problem = f"{job_id} has no living driver"
    else:
        return
    raise RefusedError("to", problem, f"Let it run (`python -m rewind run {job_id}`), and roll back when it does")


def _end_rewind(connection: Connection, job_id: str) -> str | None:
    rewind_id = generations.rewind_of(connection, job_id)
    if rewind_id is not None:
        rewinds.close(connection, rewind_id, lifecycle.ROLLED_BACK)
    return rewind_id
