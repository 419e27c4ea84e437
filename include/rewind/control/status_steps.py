"""The part of the view that shows the steps of a rewind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from rewind.control import rewind_rows, step_lease
from rewind.control.rewinds import Step
from rewind.core import lifecycle
from rewind.core.plan import REPAIR

PENDING, RUNNING, DONE, FAILED = "pending", "running", "done", "failed"


@dataclass(frozen=True)
class StepView:
    """A step, by its newest attempt.

    Attributes:
        name: Its name.
        state: pending, running, done or failed.
        attempt: Number of the attempt, 0 before the first.
        seconds: How long it took, or has taken so far; None before the first attempt.
        cpu_seconds: CPU seconds, JVM and Python together; None for a step that only waits.
        evidence: What it saw.
        driver: Whether its newest driver was re-attached, replaced or is an orphan; empty when it is none.
    """

    name: str
    state: str = PENDING
    attempt: int = 0
    seconds: float | None = None
    cpu_seconds: float | None = None
    evidence: Any = None
    driver: str = ""


def steps_of(connection: Connection, kinds: Mapping[str, str], now: datetime) -> dict[str, tuple[StepView, ...]]:
    """Return the steps of rewinds in their order, each by its newest attempt, by rewind.

    Args:
        connection: To the registry.
        kinds: The rewinds with the kinds of their plans.
        now: The instant that times are counted to, UTC without zone.
    """
    ids, names = list(kinds), {*lifecycle.STEPS, *lifecycle.REPAIR_STEPS}
    made = rewind_rows.attempts(connection, ids)
    names |= {attempt.step for attempts in made.values() for attempt in attempts}
    drivers = step_lease.seen(connection, ids, names)
    views = {rewind_id: _steps(made.get(rewind_id, ()), kind, now) for rewind_id, kind in kinds.items()}
    return {
        rewind_id: tuple(replace(step, driver=drivers.get((rewind_id, step.name), "")) for step in steps)
        for rewind_id, steps in views.items()
    }


def _steps(attempts: Sequence[Step], kind: str, now: datetime) -> tuple[StepView, ...]:
    order = lifecycle.REPAIR_STEPS if kind == REPAIR else lifecycle.STEPS
    newest = {a.step: a for a in sorted(attempts, key=lambda a: a.attempt)}
    others = [name for name in newest if name not in order]
    return tuple(_step(name, newest.get(name), now) for name in (*order, *others))


def _step(name: str, last: Step | None, now: datetime) -> StepView:
    if last is None:
        return StepView(name)
    seconds = round(((last.ended_at or now) - last.started_at).total_seconds(), 2)
    return StepView(name, last.state, last.attempt, seconds, last.cpu_seconds, last.evidence)
