"""What the registry holds of many rewinds, each table read once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Row, Table, func, select

from rewind.core import lifecycle
from rewind.core.planning import plan
from rewind.core.planning.plan import Plan
from rewind.registry import schema
from rewind.registry.rewinds import Rewind, Step

PLANS_KEPT = 1_000


def shown(connection: Connection, recent: int, pipeline: str = "") -> dict[str, list[Rewind]]:
    """Return the active rewind of each pipeline, if any, and its last ended ones, newest first, by pipeline.

    Args:
        connection: To the registry.
        recent: How many ended ones of each pipeline.
        pipeline: The one pipeline; empty for all.
    """
    table = schema.rewinds
    active = table.c.state == lifecycle.ACTIVE
    newest = func.row_number().over(partition_by=(table.c.pipeline, active), order_by=table.c.created_at.desc())
    all_of_them = select(table, newest.label("rank"))
    ranked = (all_of_them.where(table.c.pipeline == pipeline) if pipeline else all_of_them).subquery()
    wanted = (ranked.c.state == lifecycle.ACTIVE) | (ranked.c.rank <= recent)
    found: dict[str, list[Rewind]] = defaultdict(list)
    for row in connection.execute(select(ranked).where(wanted).order_by(ranked.c.created_at.desc())):
        found[row.pipeline].append(_rewind(row))
    return found


def newest(connection: Connection, count: int, pipelines: Collection[str]) -> list[Rewind]:
    """Return the newest rewinds of some pipelines, newest first."""
    table = schema.rewinds
    query = select(table).where(table.c.pipeline.in_(pipelines))
    query = query.order_by(table.c.created_at.desc(), table.c.id).limit(count)
    return [_rewind(row) for row in connection.execute(query)]


def _rewind(row: Any) -> Rewind:
    return Rewind(row.id, row.pipeline, row.plan_id, row.job_id, row.state, row.reason, row.created_at, row.ended_at)


def plans(connection: Connection, found: Sequence[Rewind]) -> dict[str, Plan]:
    """Return the plans of rewinds, by the plan's id."""
    table = schema.plans
    ids = {rewind.plan_id for rewind in found}
    rows = connection.execute(select(table.c.id, table.c.body).where(table.c.id.in_(ids)))
    return {row.id: _plan(row.body) for row in rows}


def attempts(connection: Connection, ids: Sequence[str]) -> dict[str, list[Step]]:
    """Return all attempts at the steps of rewinds, in order of their start, by rewind."""
    found: dict[str, list[Step]] = defaultdict(list)
    for r in _rows(connection, schema.steps, ids, schema.steps.c.started_at):
        step = Step(r.step, r.attempt, r.state, r.started_at, r.ended_at, r.cpu_seconds, r.evidence)
        found[r.rewind_id].append(step)
    return found


def chunks(connection: Connection, ids: Sequence[str]) -> dict[str, list[Row[Any]]]:
    """Return the chunks of rewinds as their table has them, by rewind."""
    found: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in _rows(connection, schema.chunks, ids, schema.chunks.c.number):
        found[row.rewind_id].append(row)
    return found


def controls(connection: Connection, ids: Sequence[str]) -> dict[str, tuple[bool, int | None]]:
    """Return whether backfills are paused, and their limits in records per second, by rewind, where any was set."""
    rows = _rows(connection, schema.controls, ids, schema.controls.c.rewind_id)
    return {row.rewind_id: (bool(row.paused), row.records_per_second) for row in rows}


def _rows(connection: Connection, table: Table, ids: Sequence[str], order: Any) -> Sequence[Row[Any]]:
    return connection.execute(select(table).where(table.c.rewind_id.in_(ids)).order_by(order)).all()


# A plan never changes: its id is the hash of its body.
@lru_cache(maxsize=PLANS_KEPT)
def _plan(body: str) -> Plan:
    return plan.from_json(body)
