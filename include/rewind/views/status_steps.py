"""The part of the view that shows the steps of a rewind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from rewind.core.planning.stages import RECORDED, SHAPES
from rewind.registry.rewinds import Step
from rewind.runtime.drivers import step_lease
from rewind.views import rewind_rows

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


class Steps:
    """What the registry holds of the steps of rewinds, read once; their drivers are looked for when it is let go."""

    def __init__(self, connection: Connection, rewind_ids: Sequence[str], now: datetime) -> None:
        """Read it; times are counted to `now`, UTC without zone."""
        self._made = rewind_rows.attempts(connection, rewind_ids)
        names = {attempt.step for attempts in self._made.values() for attempt in attempts}
        names |= {*RECORDED}
        self._submits = step_lease.submits(connection, rewind_ids, names)
        self._now = now

    @cached_property
    def _drivers(self) -> dict[tuple[str, str], str]:
        return step_lease.seen(self._submits)

    def of(self, rewind_id: str, kind: str) -> tuple[StepView, ...]:
        """Return the steps of a rewind, whose plan is of a kind, in their order, each by its newest attempt."""
        steps = _steps(self._made.get(rewind_id, ()), kind, self._now)
        return tuple(replace(step, driver=self._drivers.get((rewind_id, step.name), "")) for step in steps)


def _steps(attempts: Sequence[Step], kind: str, now: datetime) -> tuple[StepView, ...]:
    order = SHAPES[kind].steps
    newest = {a.step: a for a in sorted(attempts, key=lambda a: a.attempt)}
    others = [name for name in newest if name not in order]
    return tuple(_step(name, newest.get(name), now) for name in (*order, *others))


def _step(name: str, last: Step | None, now: datetime) -> StepView:
    if last is None:
        return StepView(name)
    seconds = round(((last.ended_at or now) - last.started_at).total_seconds(), 2)
    return StepView(name, last.state, last.attempt, seconds, last.cpu_seconds, last.evidence)
