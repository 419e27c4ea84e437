"""What the live job has published into its pipeline's shared output, epoch by epoch, and who has asked it to stop.

Only the driver that holds the lease of the job that the pointer names publishes, and it asks here first: `begin`.
Before the pointer moves it is asked to stop (`hold`) and answers the next time it asks. So whoever moves the pointer
knows that nothing of the old epoch is on its way, which a topic could not hold off.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from rewind.core.errors import RetryError
from rewind.core.offsets import Vector
from rewind.registry import generations, leases, schema
from rewind.registry.database import now, vector_from_json, vector_to_json

_table = schema.publications


@dataclass(frozen=True)
class Counts:
    """What publishing did, in keys.

    Attributes:
        written: Keys that got a newer version.
        repeated: Keys that had this version already: an attempt before this one wrote it.
        stale: Keys that had a newer version: what came was skipped.
        vanished: Keys that got a tombstone, because the job does not have them.
    """

    written: int = 0
    repeated: int = 0
    stale: int = 0
    vanished: int = 0


@dataclass(frozen=True)
class Publication:
    """What was published under one epoch.

    Attributes:
        pipeline: The pipeline.
        epoch: The pointer's epoch: the first part of the versions.
        job_id: The job that is live at it.
        batch: The job's batch up to which all is published; None before its whole output was merged once.
        staged: From where on the job's own output has not been read; empty with `batch` None.
        shared: Where the shared output ended when that was recorded; empty with `batch` None.
        counts: Sums over all that was published.
        held_by: The rewind or rollback for which it has to stop; None when it may publish.
        stopped_at: When the driver saw that, UTC.
    """

    pipeline: str
    epoch: int
    job_id: str
    batch: int | None
    staged: Vector
    shared: Vector
    counts: Counts
    held_by: str | None
    stopped_at: datetime | None

    def told(self) -> dict[str, Any]:
        """Return what evidence and views say of it."""
        return {"epoch": self.epoch, "batch": self.batch, **self.counts.__dict__}


def find(connection: Connection, pipeline: str, epoch: int) -> Publication | None:
    """Return what was published under an epoch, or None when nothing was begun."""
    row = connection.execute(select(_table).where(_at(pipeline, epoch))).one_or_none()
    if row is None:
        return None
    return Publication(
        pipeline=row.pipeline,
        epoch=row.epoch,
        job_id=row.job_id,
        batch=row.batch,
        staged=vector_from_json(row.staged),
        shared=vector_from_json(row.shared),
        counts=Counts(row.written, row.repeated, row.stale, row.vanished),
        held_by=row.held_by,
        stopped_at=row.stopped_at,
    )


def begin(connection: Connection, pipeline: str, job_id: str, token: int, through: int) -> Publication | None:
    """Name what a driver is about to publish; None when it has nothing to publish, or may not.

    Args:
        connection: A transaction.
        pipeline: The pipeline.
        job_id: The driver's job.
        token: Its lease's token.
        through: The newest batch that it has committed.

    Raises:
        LeaseLostError: A newer token was handed out.
    """
    live = generations.live(connection, pipeline)
    if live is None or live[0].job_id != job_id:
        return None
    found = _opened(connection, pipeline, live[1], job_id)
    if found.held_by is not None:
        if found.stopped_at is None:
            _set(connection, found, stopped_at=now(), going=None)
        return None
    if found.batch is not None and found.batch >= through:
        return None
    leases.renew(connection, job_id, token)
    _set(connection, found, going=through)
    return found


def record(
    connection: Connection, begun: Publication, token: int, through: int, staged: Vector, shared: Vector, counts: Counts
) -> None:
    """Record that all up to a batch is published.

    Args:
        connection: A transaction.
        begun: What `begin` returned.
        token: The lease's token.
        through: The batch.
        staged: From where on the job's own output has not been read.
        shared: Where the shared output ends now.
        counts: What was done.

    Raises:
        LeaseLostError: A newer token was handed out.
    """
    leases.renew(connection, begun.job_id, token)
    sums = {name: value + getattr(begun.counts, name) for name, value in counts.__dict__.items()}
    places = {"staged": vector_to_json(staged), "shared": vector_to_json(shared)}
    _set(connection, begun, batch=through, going=None, **places, **sums)


def hold(connection: Connection, pipeline: str, epoch: int, job_id: str, by: str) -> None:
    """Ask the job that is live at an epoch to stop publishing; who asks last is who may move the pointer."""
    _set(connection, _opened(connection, pipeline, epoch, job_id), held_by=by)


def release(connection: Connection, pipeline: str, by: str) -> None:
    """Let publishing go on, if it was stopped for this rewind or rollback."""
    mine = (_table.c.pipeline == pipeline) & (_table.c.held_by == by)
    connection.execute(update(_table).where(mine).values(held_by=None, stopped_at=None))


def check_stopped(connection: Connection, pipeline: str, epoch: int, by: str) -> None:
    """Check that nothing is being published under an epoch, and nothing will be.

    Raises:
        RetryError: The driver has not answered yet and lives, or publishing was let go on meanwhile.
    """
    found = find(connection, pipeline, epoch)
    if found is None or found.held_by != by:
        raise RetryError(f"{pipeline}: publishing at epoch {epoch} is not held for {by}")
    lease = leases.read(connection, found.job_id)
    living = lease is not None and lease.holder is not None and leases.alive(lease.holder)
    if found.stopped_at is None and living:
        raise RetryError(f"{found.job_id} has not stopped publishing yet")


def _opened(connection: Connection, pipeline: str, epoch: int, job_id: str) -> Publication:
    found = find(connection, pipeline, epoch)
    if found is None:
        nothing: dict[str, Any] = {"staged": {}, "shared": {}, **Counts().__dict__}
        values = {"pipeline": pipeline, "epoch": epoch, "job_id": job_id, "at": now(), **nothing}
        connection.execute(insert(_table).values(**values))
        found = find(connection, pipeline, epoch)
        assert found is not None
    return found


def _set(connection: Connection, found: Publication, **values: Any) -> None:
    connection.execute(update(_table).where(_at(found.pipeline, found.epoch)).values(at=now(), **values))


def _at(pipeline: str, epoch: int) -> Any:
    return (_table.c.pipeline == pipeline) & (_table.c.epoch == epoch)
