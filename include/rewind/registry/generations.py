"""Generations, the live pointer, and what each generation owns."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError as UniqueViolation

from rewind.core import lifecycle, names
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.model import Generation
from rewind.core.offsets import Vector
from rewind.registry import owners, schema
from rewind.registry.database import now, vector_from_json, vector_to_json

_table = schema.generations


def read(connection: Connection, job_id: str) -> Generation:
    """Return a generation.

    Raises:
        RefusedError: There is none of that id.
    """
    row = connection.execute(select(_table).where(_table.c.job_id == job_id)).one_or_none()
    if row is None:
        raise RefusedError("job_id", f"{job_id!r} is unknown", "Look at `python -m rewind status`")
    return _generation(row)


def find(connection: Connection, job_id: str) -> Generation | None:
    """Return a generation, or None when there is none of that id."""
    row = connection.execute(select(_table).where(_table.c.job_id == job_id)).one_or_none()
    return None if row is None else _generation(row)


def all_of(connection: Connection, pipeline: str) -> list[Generation]:
    """Return the generations and repairs of a pipeline, oldest first."""
    rows = connection.execute(select(_table).where(_table.c.pipeline == pipeline).order_by(_table.c.created_at))
    return [_generation(row) for row in rows]


def outputs(connection: Connection) -> set[str]:
    """Return the declared output topics of all generations, without the suffix of a generation."""
    frozen = connection.execute(select(_table.c.frozen)).scalars()
    return {str(body["config"]["output_topic"]) for body in frozen}


def in_state(connection: Connection, pipeline: str, state: str) -> list[Generation]:
    """Return the generations of a pipeline that are in a state."""
    return [g for g in all_of(connection, pipeline) if g.state == state]


def live(connection: Connection, pipeline: str) -> tuple[Generation, int] | None:
    """Return the generation that the pointer names and the epoch, or None before the first deploy."""
    row = connection.execute(select(schema.pointers).where(schema.pointers.c.pipeline == pipeline)).one_or_none()
    return None if row is None else (read(connection, row.job_id), row.epoch)


def next_number(connection: Connection, pipeline: str, kind: str) -> int:
    """Return the number after the highest that a generation (`g`) or repair (`r`) of the pipeline ever had."""
    of_kind = (_table.c.pipeline == pipeline) & (_table.c.kind == kind)
    return (connection.execute(select(func.max(_table.c.number)).where(of_kind)).scalar() or 0) + 1


def create(connection: Connection, made: Generation, rewind_id: str | None) -> Generation:
    """Record a new generation before anything of it exists; the same call again returns the recorded one.

    Raises:
        RefusedError: The id is taken by another rewind, the pipeline has a candidate already, or another owner has one
            of the names.
    """
    # Also of one that is recorded: an older release may have given its names to two.
    owners.claim(connection, owners_of(made))
    row = connection.execute(select(_table).where(_table.c.job_id == made.job_id)).one_or_none()
    if row is not None:
        if row.rewind_id != rewind_id:
            raise RefusedError("job_id", f"{made.job_id} belongs to rewind {row.rewind_id}", "Make a new plan")
        return _generation(row)
    _, kind, number = names.parse_job_id(made.job_id)
    try:
        # Within a savepoint: the transaction can go on after a refusal.
        with connection.begin_nested():
            connection.execute(
                insert(_table).values(
                    job_id=made.job_id,
                    pipeline=made.pipeline,
                    kind=kind,
                    number=number,
                    state=made.state,
                    rewind_id=rewind_id,
                    topic_id=made.topic_id,
                    bundle=made.bundle,
                    frozen=dict(made.frozen),
                    start=vector_to_json(made.start),
                    handoff=None if made.handoff is None else vector_to_json(made.handoff),
                    output_topic=made.output_topic,
                    dead_letter_topic=made.dead_letter_topic,
                    created_at=now(),
                )
            )
    except UniqueViolation:
        raise RefusedError(
            "pipeline", f"{made.pipeline} has a {made.state} already", "Abort or finish it first"
        ) from None
    return made


def owners_of(made: Generation) -> list[owners.Claim]:
    """Return all that a generation and its pipeline own by name."""
    outputs = (made.output_topic, made.dead_letter_topic)
    return owners.of_job(made.pipeline, made.job_id, made.frozen["config"], outputs)


def set_handoff(connection: Connection, job_id: str, handoff: Vector) -> Vector:
    """Fix the handoff of a generation once; a later call returns what was fixed first."""
    unset = (_table.c.job_id == job_id) & _table.c.handoff.is_(None)
    connection.execute(update(_table).where(unset).values(handoff=vector_to_json(handoff)))
    fixed = read(connection, job_id).handoff
    assert fixed is not None
    return fixed


def move(connection: Connection, job_id: str, state: str) -> None:
    """Move a generation to a state; harmless when it is there already.

    Raises:
        RefusedError: The lifecycle does not allow the move.
        WorldMovedError: Another transaction has moved it meanwhile.
    """
    old = read(connection, job_id).state
    if old == state:
        return
    lifecycle.check_move(job_id, old, state)
    unchanged = (_table.c.job_id == job_id) & (_table.c.state == old)
    if connection.execute(update(_table).where(unchanged).values(state=state)).rowcount != 1:
        raise WorldMovedError("job_id", f"{job_id} is no longer {old}", "Look at `python -m rewind status`")


def set_first(connection: Connection, job_id: str) -> int:
    """Point a pipeline that has no live generation at its first one, and return the epoch, 1."""
    made = read(connection, job_id)
    found = live(connection, made.pipeline)
    if found is not None:
        if found[0].job_id != job_id:
            raise RefusedError("pipeline", f"{made.pipeline} has {found[0].job_id} live", "Use the rewind DAG")
        return found[1]
    move(connection, job_id, lifecycle.LIVE)
    connection.execute(insert(schema.pointers).values(pipeline=made.pipeline, job_id=job_id, epoch=1, moved_at=now()))
    return 1


def switch(connection: Connection, pipeline: str, old: str, new: str, epoch: int, grace: timedelta) -> int:
    """Move the pointer from `old` at `epoch` to `new`: one compare-and-set.

    The old generation becomes standby with a grace period; a move that was done already returns its epoch.

    Returns:
        The new epoch.

    Raises:
        WorldMovedError: The pointer is elsewhere.
    """
    pointers = schema.pointers
    expected = (pointers.c.pipeline == pipeline) & (pointers.c.job_id == old) & (pointers.c.epoch == epoch)
    values: dict[str, Any] = {"job_id": new, "epoch": epoch + 1, "moved_at": now()}
    if connection.execute(update(pointers).where(expected).values(**values)).rowcount != 1:
        found = live(connection, pipeline)
        if found is not None and found[0].job_id == new and found[1] == epoch + 1:
            return epoch + 1
        where = f"{found[0].job_id} at epoch {found[1]}" if found else "nowhere"
        raise WorldMovedError(
            "pipeline", f"the pointer of {pipeline} is at {where}, not {old} at {epoch}", "Make a new plan"
        )
    move(connection, old, lifecycle.STANDBY)
    move(connection, new, lifecycle.LIVE)
    set_grace(connection, old, now() + grace)
    return epoch + 1


def end_older_standbys(connection: Connection, pipeline: str, newest: str) -> None:
    """End the grace of all standbys of a pipeline but the newest: a new cut-over retires them."""
    for older in in_state(connection, pipeline, lifecycle.STANDBY):
        if older.job_id != newest:
            set_grace(connection, older.job_id, now())


def set_grace(connection: Connection, job_id: str, until: datetime | None) -> None:
    """Set until when a standby is kept; None for a job that is none."""
    connection.execute(update(_table).where(_table.c.job_id == job_id).values(grace_until=until))


def grace_until(connection: Connection, job_id: str) -> datetime | None:
    """Return until when a standby is kept, if it is one."""
    return connection.execute(select(_table.c.grace_until).where(_table.c.job_id == job_id)).scalar_one_or_none()


def rewind_of(connection: Connection, job_id: str) -> str | None:
    """Return the rewind that made a generation; None for one that was deployed."""
    return connection.execute(select(_table.c.rewind_id).where(_table.c.job_id == job_id)).scalar_one_or_none()


def _generation(row: Row[Any]) -> Generation:
    return Generation(
        job_id=row.job_id,
        pipeline=row.pipeline,
        state=row.state,
        topic_id=row.topic_id,
        bundle=row.bundle,
        frozen=row.frozen,
        start=vector_from_json(row.start),
        handoff=None if row.handoff is None else vector_from_json(row.handoff),
        output_topic=row.output_topic,
        dead_letter_topic=row.dead_letter_topic,
    )
