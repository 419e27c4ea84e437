"""Plans, rewinds, their steps and the values they fix once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError as UniqueViolation

from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.core.planning import plan
from rewind.core.planning.plan import Plan
from rewind.registry import schema
from rewind.registry.database import now

ABORTING = "abort.intent"
"""Name of the fact that a rewind is being aborted."""
ASKED, OVER, PERSON = "asked", "asked.over", "asked.person"
"""Names of the facts that a rewind was asked for, and why it will have no plan (`registry.plannings`)."""
HIGHEST_LIMIT = 2**31 - 1
"""Records a second: the highest number that its column holds on PostgreSQL."""


@dataclass(frozen=True)
class Rewind:
    """One run of the lifecycle.

    Attributes:
        id: Its id, the same through retries and clears.
        pipeline: The pipeline it rewinds.
        plan_id: The plan it carries out.
        job_id: The job it makes.
        state: active, finished, failed, aborted or rolled_back.
        reason: Why it was asked for.
        created_at: When it became active, UTC.
        ended_at: When it stopped being active, UTC.
    """

    id: str
    pipeline: str
    plan_id: str
    job_id: str
    state: str
    reason: str
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Step:
    """One attempt at a step of a rewind."""

    step: str
    attempt: int
    state: str
    started_at: datetime
    ended_at: datetime | None
    cpu_seconds: float | None
    evidence: Any


def store_plan(connection: Connection, made: Plan) -> None:
    """Store a plan; harmless when it is stored already."""
    if connection.execute(select(schema.plans.c.id).where(schema.plans.c.id == made.id)).first() is None:
        values = {"id": made.id, "pipeline": made.request.pipeline, "body": made.to_json(), "created_at": now()}
        connection.execute(insert(schema.plans).values(**values))


def read_plan(connection: Connection, plan_id: str) -> Plan:
    """Return a stored plan.

    Raises:
        RefusedError: There is none of that id.
    """
    body = connection.execute(select(schema.plans.c.body).where(schema.plans.c.id == plan_id)).scalar_one_or_none()
    if body is None:
        raise RefusedError("apply_plan", f"plan {plan_id!r} is unknown", "Give the id that a dry run printed")
    return plan.from_json(body)


def open_rewind(connection: Connection, rewind_id: str, made: Plan) -> None:
    """Make a rewind active with its plan; harmless when it is active with that plan already.

    Raises:
        RefusedError: Another rewind of the pipeline is active, or this id has ended or has another plan.
    """
    found = find(connection, rewind_id)
    if found is not None:
        if found.state != lifecycle.ACTIVE:
            raise RefusedError("rewind_id", f"rewind {rewind_id} is {found.state}", "Trigger a new run")
        if found.plan_id != made.id:
            raise RefusedError("apply_plan", f"rewind {rewind_id} has plan {found.plan_id}", "Trigger a new run")
        return
    store_plan(connection, made)
    pipeline = made.request.pipeline
    try:
        # Within a savepoint: the transaction can still ask who was first.
        with connection.begin_nested():
            connection.execute(
                insert(schema.rewinds).values(
                    id=rewind_id,
                    pipeline=pipeline,
                    plan_id=made.id,
                    job_id=made.job_id,
                    state=lifecycle.ACTIVE,
                    reason=made.request.reason,
                    created_at=now(),
                )
            )
    except UniqueViolation:
        other = active_of(connection, pipeline)
        problem = f"rewind {other.id if other else 'unknown'} of {pipeline} is active"
        raise RefusedError("pipeline", problem, "Wait for it, finish it, or abort it") from None


def find(connection: Connection, rewind_id: str) -> Rewind | None:
    """Return a rewind, or None when there is none of that id."""
    row = connection.execute(select(schema.rewinds).where(schema.rewinds.c.id == rewind_id)).one_or_none()
    return None if row is None else _rewind(row)


def read(connection: Connection, rewind_id: str) -> Rewind:
    """Return a rewind.

    Raises:
        RefusedError: There is none of that id, or it has no plan yet.
    """
    found = find(connection, rewind_id)
    if found is not None:
        return found
    if fact(connection, rewind_id, ASKED) is None:
        raise RefusedError("rewind_id", f"rewind {rewind_id!r} is unknown", "Look at `python -m rewind status`")
    over = fact(connection, rewind_id, OVER)
    cure = "Wait for its plan, or abort it" if over is None else "Trigger a new run"
    raise RefusedError("rewind_id", f"rewind {rewind_id} {over or 'is being planned'}", cure)


def read_active(connection: Connection, rewind_id: str) -> tuple[Rewind, Plan]:
    """Return an active rewind with its plan.

    Raises:
        RefusedError: It is unknown, not active, or being aborted.
    """
    found = read(connection, rewind_id)
    if found.state != lifecycle.ACTIVE:
        raise RefusedError("rewind_id", f"rewind {rewind_id} is {found.state}", "Trigger a new run")
    if fact(connection, rewind_id, ABORTING) is not None:
        raise RefusedError("rewind_id", f"rewind {rewind_id} is being aborted", "Abort it again if that broke off")
    return found, read_plan(connection, found.plan_id)


def active_of(connection: Connection, pipeline: str) -> Rewind | None:
    """Return the active rewind of a pipeline, if any."""
    table = schema.rewinds
    where = (table.c.pipeline == pipeline) & (table.c.state == lifecycle.ACTIVE)
    row = connection.execute(select(table).where(where)).one_or_none()
    return None if row is None else _rewind(row)


def all_of(connection: Connection, pipeline: str) -> list[Rewind]:
    """Return the rewinds of a pipeline, newest first."""
    table = schema.rewinds
    rows = connection.execute(select(table).where(table.c.pipeline == pipeline).order_by(table.c.created_at.desc()))
    return [_rewind(row) for row in rows]


def pinned_versions(connection: Connection, topic: str) -> list[int]:
    """Return the mirror versions of a topic that active rewinds still read: the oldest is their plan's."""
    active = connection.execute(select(schema.rewinds).where(schema.rewinds.c.state == lifecycle.ACTIVE))
    found: list[int] = []
    for row in active.all():
        made = read_plan(connection, row.plan_id)
        if made.topic == topic and made.mirror_version >= 0:
            found.append(made.mirror_version)
    return found


def watched_standbys(connection: Connection) -> set[str]:
    """Return the jobs that active rewinds replace: their standby is kept until the rewind has ended."""
    active = connection.execute(select(schema.rewinds.c.plan_id).where(schema.rewinds.c.state == lifecycle.ACTIVE))
    return {read_plan(connection, plan_id).live_job_id for plan_id in active.scalars().all()}


def close(connection: Connection, rewind_id: str, state: str) -> None:
    """End an active rewind; harmless when it has ended already."""
    where = (schema.rewinds.c.id == rewind_id) & (schema.rewinds.c.state == lifecycle.ACTIVE)
    connection.execute(update(schema.rewinds).where(where).values(state=state, ended_at=now()))


def begin_step(connection: Connection, rewind_id: str, step: str) -> int:
    """Record that a step begins and return its attempt, counted from 1."""
    table = schema.steps
    mine = (table.c.rewind_id == rewind_id) & (table.c.step == step)
    attempt = int(connection.execute(select(func.max(table.c.attempt)).where(mine)).scalar() or 0) + 1
    connection.execute(
        insert(table).values(rewind_id=rewind_id, step=step, attempt=attempt, state="running", started_at=now())
    )
    return attempt


def end_step(connection: Connection, rewind_id: str, step: str, attempt: int, state: str, evidence: Any) -> None:
    """Record how an attempt ended (`done` or `failed`) and what it saw."""
    connection.execute(
        update(schema.steps)
        .where(_attempt(rewind_id, step, attempt))
        .values(state=state, ended_at=now(), evidence=evidence)
    )


def set_cpu(connection: Connection, rewind_id: str, step: str, cpu_seconds: float) -> None:
    """Record the CPU seconds, JVM and Python together, of the newest attempt at a step."""
    attempt = last_attempt(connection, rewind_id, step)
    connection.execute(
        update(schema.steps).where(_attempt(rewind_id, step, attempt)).values(cpu_seconds=round(cpu_seconds, 2))
    )


def last_attempt(connection: Connection, rewind_id: str, step: str, state: str | None = None) -> int:
    """Return the newest attempt at a step (in a state, when one is given), 0 when there is none."""
    table = schema.steps
    where = (table.c.rewind_id == rewind_id) & (table.c.step == step)
    if state is not None:
        where &= table.c.state == state
    return int(connection.execute(select(func.max(table.c.attempt)).where(where)).scalar() or 0)


def steps_of(connection: Connection, rewind_id: str) -> list[Step]:
    """Return all attempts at the steps of a rewind, in order of their start."""
    table = schema.steps
    rows = connection.execute(select(table).where(table.c.rewind_id == rewind_id).order_by(table.c.started_at))
    return [Step(r.step, r.attempt, r.state, r.started_at, r.ended_at, r.cpu_seconds, r.evidence) for r in rows]


def fix(connection: Connection, rewind_id: str, name: str, value: Any) -> Any:
    """Store a value that is fixed once a rewind, and return the one that was fixed first."""
    found = fact(connection, rewind_id, name)
    if found is None:
        connection.execute(insert(schema.facts).values(rewind_id=rewind_id, name=name, value=value, at=now()))
        return value
    return found


def fact(connection: Connection, rewind_id: str, name: str) -> Any:
    """Return a value that was fixed, or None."""
    table = schema.facts
    where = (table.c.rewind_id == rewind_id) & (table.c.name == name)
    return connection.execute(select(table.c.value).where(where)).scalar_one_or_none()


def asked_by(connection: Connection, rewind_id: str) -> str:
    """Return who asked for a rewind, by the name that Airflow has of them; empty where it is not known."""
    return str(fact(connection, rewind_id, PERSON) or "")


def fact_at(connection: Connection, rewind_id: str, name: str) -> datetime | None:
    """Return when a value was fixed, or None."""
    table = schema.facts
    where = (table.c.rewind_id == rewind_id) & (table.c.name == name)
    return connection.execute(select(table.c.at).where(where)).scalar_one_or_none()


def controls(connection: Connection, rewind_id: str) -> tuple[bool, int | None]:
    """Return whether the backfill of a rewind is paused, and its limit in records per second."""
    table = schema.controls
    row = connection.execute(select(table).where(table.c.rewind_id == rewind_id)).one_or_none()
    return (False, None) if row is None else (bool(row.paused), row.records_per_second)


def set_controls(connection: Connection, rewind_id: str, *, paused: bool, records_per_second: int | None) -> None:
    """Pause, resume or throttle the backfill of an active rewind.

    Raises:
        RefusedError: The rewind is unknown or not active, or the limit is below 1 or above `HIGHEST_LIMIT`.
    """
    read_active(connection, rewind_id)
    if records_per_second is not None and records_per_second < 1:
        raise RefusedError("records_per_second", f"{records_per_second} is below 1", "Pause the backfill instead")
    if records_per_second is not None and records_per_second > HIGHEST_LIMIT:
        problem = f"{records_per_second} is above {HIGHEST_LIMIT}"
        raise RefusedError("records_per_second", problem, "Lift the limit instead")
    table = schema.controls
    values = {"paused": int(paused), "records_per_second": records_per_second}
    if connection.execute(update(table).where(table.c.rewind_id == rewind_id).values(**values)).rowcount == 0:
        connection.execute(insert(table).values(rewind_id=rewind_id, **values))


def _attempt(rewind_id: str, step: str, attempt: int) -> Any:
    table = schema.steps
    return (table.c.rewind_id == rewind_id) & (table.c.step == step) & (table.c.attempt == attempt)


def _rewind(row: Row[Any]) -> Rewind:
    return Rewind(row.id, row.pipeline, row.plan_id, row.job_id, row.state, row.reason, row.created_at, row.ended_at)
