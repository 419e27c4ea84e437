"""Rewinds that are asked for and have no plan yet: known from when their run is asked for, so that they can be aborted.

They are facts of the registry beside the rewinds, of which each pipeline may have one active: any number of plans may
be made at a time, and a dry run keeps nobody waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, select

from rewind.core import causes
from rewind.core.errors import RefusedError
from rewind.registry import rewinds, schema
from rewind.registry.rewinds import ASKED, OVER

STEP = "plan"

_facts, _steps = schema.facts, schema.steps


@dataclass(frozen=True)
class Planning:
    """A rewind that is being planned.

    Attributes:
        id: Its id, of the DAG run that was asked for.
        pipeline: The pipeline.
        reason: Why it was asked for.
        dry_run: Whether it ends with its plan.
        asked_at: Since when it is known, UTC.
    """

    id: str
    pipeline: str
    reason: str
    dry_run: bool
    asked_at: datetime

    def told(self) -> str:
        """Return what it is and since when, as one line."""
        kind = "planning, a dry run" if self.dry_run else "planning"
        return f"{kind}, since {self.asked_at:%Y-%m-%d %H:%M:%S}Z{f'  ({self.reason})' if self.reason else ''}"


def ask(connection: Connection, rewind_id: str, pipeline: str, reason: str, *, dry_run: bool, person: str = "") -> None:
    """Record that a rewind is asked for; again, after its plan failed, it is being planned once more.

    Args:
        connection: To the registry.
        rewind_id: Its id.
        pipeline: The pipeline.
        reason: Why.
        dry_run: Whether it ends with its plan.
        person: Who asks, as Airflow says; empty where that is not known here. Whoever is told first is kept.

    Raises:
        RefusedError: It was aborted.
    """
    refuse_aborted(connection, rewind_id)
    rewinds.fix(connection, rewind_id, ASKED, {"pipeline": pipeline, "reason": reason, "dry_run": dry_run})
    if person:
        rewinds.fix(connection, rewind_id, rewinds.PERSON, person)
    connection.execute(delete(_facts).where((_facts.c.rewind_id == rewind_id) & (_facts.c.name == OVER)))


def refuse_aborted(connection: Connection, rewind_id: str) -> None:
    """Check that nobody aborted a rewind while it was planned.

    Raises:
        RefusedError: Somebody did.
    """
    if rewinds.find(connection, rewind_id) is None and rewinds.fact(connection, rewind_id, rewinds.ABORTING):
        raise RefusedError("rewind_id", f"rewind {rewind_id} was aborted while it was planned", "Trigger a new run")


def abort(connection: Connection, rewind_id: str, reason: str) -> Planning | None:
    """Abort a rewind that is being planned and return it; None when it is not, and nothing was changed.

    Its plan step goes no further. There is nothing to take back: a plan makes nothing.
    """
    found = next((one for one in being_made(connection) if one.id == rewind_id), None)
    if found is not None:
        rewinds.fix(connection, rewind_id, rewinds.ABORTING, {"reason": reason})
        rewinds.fix(connection, rewind_id, OVER, f"was aborted while it was planned ({reason or 'no reason given'})")
    return found


def fail(connection: Connection, rewind_id: str, why: str) -> None:
    """Record that no plan was made, with what its last attempt says of the cause; harmless when there is one."""
    if rewinds.find(connection, rewind_id) is None and rewinds.fact(connection, rewind_id, ASKED) is not None:
        attempts = [step for step in rewinds.steps_of(connection, rewind_id) if step.step == STEP]
        evidence = attempts[-1].evidence if attempts else None
        told = evidence.get("error") if isinstance(evidence, dict) else None
        rewinds.fix(connection, rewind_id, OVER, f"was not planned: {causes.headline(told) or why}")


def being_made(connection: Connection, pipeline: str = "") -> list[Planning]:
    """Return the rewinds that are being planned, of one pipeline or of all, oldest first."""
    ended = select(_facts.c.rewind_id).where(_facts.c.name == OVER)
    planned = select(_steps.c.rewind_id).where((_steps.c.step == STEP) & (_steps.c.state == "done"))
    open_ones = _facts.c.rewind_id.not_in(ended.union_all(planned, select(schema.rewinds.c.id)))
    rows = connection.execute(select(_facts).where((_facts.c.name == ASKED) & open_ones).order_by(_facts.c.at))
    found = [_planning(row) for row in rows]
    return [one for one in found if pipeline in ("", one.pipeline)]


def _planning(row: Any) -> Planning:
    asked = row.value
    return Planning(row.rewind_id, asked["pipeline"], asked["reason"], asked["dry_run"], row.at)
