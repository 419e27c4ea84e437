"""The part of the view that shows rewinds: plan, steps, backfill, verdict, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select

from rewind.control import observing, rewinds, schema, step_lease, verdicts
from rewind.control.observing import Observed
from rewind.control.rewinds import Rewind
from rewind.control.status_jobs import Job
from rewind.control.status_steps import DONE, FAILED, RUNNING, StepView, steps_of
from rewind.control.verdicts import Approval, Verdict
from rewind.core import lifecycle
from rewind.core.offsets import Vector
from rewind.core.plan import Plan

WHY = ("error", "problem", "refused", "answer")
"""Fields in which the evidence of a failed step says why."""
FORWARD_ONLY = ("cut_over", "observe", "merge")
"""Steps after which there may be nothing to take back."""


@dataclass(frozen=True)
class Backfill:
    """How far a backfill has come.

    Attributes:
        chunks_done: Chunks that are done.
        chunks: Chunks cut so far; a further wave adds some.
        records_done: Source records processed.
        offsets: Offsets that all chunks span.
        offsets_done: Offsets that the finished ones span.
        rate: Records a second, pauses included; None before the first chunk is done.
        seconds_left: Estimate of the time to the end of the last chunk cut; None without a rate.
        paused: Whether it is paused.
        records_per_second: Its limit; None without one.
        partitions: Per partition the offsets that are done, and those that all chunks span.
    """

    chunks_done: int
    chunks: int
    records_done: int
    offsets: int
    offsets_done: int
    rate: float | None
    seconds_left: float | None
    paused: bool
    records_per_second: int | None
    partitions: Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class RewindView:
    """One rewind.

    Attributes:
        id: Its id.
        state: active, finished, failed or aborted.
        job_id: The job it makes.
        live_job_id: The job that was live when it was planned.
        reason: Why it was asked for.
        created_at: When it became active, UTC.
        ended_at: When it ended, UTC.
        plan: Its plan.
        handoff: First offset that the candidate's stream reads; None until it is fixed.
        steps: Its steps in order.
        backfill: Its backfill; None before it has been cut.
        verdict: Its newest verdict.
        approval: The answer to that.
        waits: What it waits for; empty when it works or has ended.
        observed: What the comparisons since the switch found; None before the first.
    """

    id: str
    state: str
    job_id: str
    live_job_id: str
    reason: str
    created_at: datetime
    ended_at: datetime | None
    plan: Plan
    handoff: Vector | None
    steps: tuple[StepView, ...]
    backfill: Backfill | None
    verdict: Verdict | None
    approval: Approval | None
    waits: str
    observed: Observed | None = None

    def step(self, name: str) -> StepView:
        """Return one step; pending when the kind of rewind has none of that name."""
        return next((step for step in self.steps if step.name == name), StepView(name))


def rewinds_of(
    connection: Connection, pipeline: str, jobs: Sequence[Job], recent: int, now: datetime
) -> tuple[RewindView, ...]:
    """Return the active rewind of a pipeline, if any, and its last ones, newest first."""
    found = rewinds.all_of(connection, pipeline)
    ended = [rewind for rewind in found if rewind.state != lifecycle.ACTIVE][:recent]
    shown = [rewind for rewind in found if rewind.state == lifecycle.ACTIVE or rewind in ended]
    return tuple(_view(connection, rewind, {job.job_id: job for job in jobs}, now) for rewind in shown)


def rewind_of(connection: Connection, rewind_id: str, jobs: Sequence[Job], now: datetime) -> RewindView:
    """Return one rewind, however long it has ended.

    Raises:
        RefusedError: There is none of that id.
    """
    return _view(connection, rewinds.read(connection, rewind_id), {job.job_id: job for job in jobs}, now)


def backfill_of(connection: Connection, rewind_id: str, now: datetime) -> Backfill | None:
    """Return how far the backfill of a rewind has come, or None before its first wave."""
    table = schema.chunks
    rows = connection.execute(select(table).where(table.c.rewind_id == rewind_id)).all()
    if not rows:
        return None
    done = [row for row in rows if row.state == DONE]
    offsets, offsets_done = sum(map(_span, rows)), sum(map(_span, done))
    begun = min((row.started_at for row in rows if row.started_at is not None), default=now)
    until = now if len(done) < len(rows) else max(row.ended_at for row in done)
    seconds = (until - begun).total_seconds()
    records = sum(row.rows or 0 for row in done)
    rate = records / seconds if done and seconds > 0 else None
    speed = offsets_done / seconds if done and seconds > 0 else 0.0
    paused, limit = rewinds.controls(connection, rewind_id)
    return Backfill(
        chunks_done=len(done),
        chunks=len(rows),
        records_done=records,
        offsets=offsets,
        offsets_done=offsets_done,
        rate=None if rate is None else round(rate, 1),
        seconds_left=round((offsets - offsets_done) / speed, 1) if speed else None,
        paused=paused,
        records_per_second=limit,
        partitions=_by_partition(rows),
    )


def _by_partition(rows: Iterable[Any]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        for partition, (start, end) in row.ranges.items():
            done, span = found.get(int(partition), (0, 0))
            found[int(partition)] = (done + (end - start if row.state == DONE else 0), span + end - start)
    return dict(sorted(found.items()))


def _span(row: Any) -> int:
    return sum(end - start for start, end in row.ranges.values())


def _view(connection: Connection, rewind: Rewind, jobs: dict[str, Job], now: datetime) -> RewindView:
    plan = rewinds.read_plan(connection, rewind.plan_id)
    job = jobs.get(rewind.job_id)
    steps = steps_of(connection, rewind.id, plan, now)
    backfill = backfill_of(connection, rewind.id, now)
    verdict, approval = verdicts.newest(connection, rewind.id), verdicts.approval(connection, rewind.id)
    observed = observing.read(connection, rewind.id)
    view = RewindView(
        id=rewind.id,
        state=rewind.state,
        job_id=rewind.job_id,
        live_job_id=plan.live_job_id,
        reason=rewind.reason,
        created_at=rewind.created_at,
        ended_at=rewind.ended_at,
        plan=plan,
        handoff=None if job is None else job.handoff,
        steps=steps,
        backfill=backfill,
        verdict=verdict,
        approval=approval,
        observed=observed if observed.looks else None,
        waits="",
    )
    waits = why_it_waits(view, job, now) if rewind.state == lifecycle.ACTIVE else ""
    return replace(view, waits=waits)


def why_it_waits(view: RewindView, job: Job | None, now: datetime) -> str:
    """Return what an active rewind waits for, as one sentence; empty when it works."""
    rules = (_for_an_orphan, _for_a_mend, _for_a_resume, _for_a_person, _for_the_driver, _for_the_observation)
    return next((text for rule in rules if (text := rule(view, job, now))), "")


def _for_an_orphan(view: RewindView, _job: Job | None, _now: datetime) -> str:
    left = next((step for step in view.steps if step.driver.startswith(step_lease.ORPHAN)), None)
    return "" if left is None else f"{left.name} has an {left.driver}: end it, then clear the task in Airflow"


def _for_a_mend(view: RewindView, _job: Job | None, _now: datetime) -> str:
    failed = next((step for step in view.steps if step.state == FAILED), None)
    if failed is None:
        return ""
    evidence = failed.evidence if isinstance(failed.evidence, dict) else {}
    why = next((f": {evidence[name]}" for name in WHY if evidence.get(name)), "")
    cure = "clear it in Airflow" if failed.name in FORWARD_ONLY else f"abort_{view.plan.request.pipeline} takes it back"
    return f"{failed.name} failed (attempt {failed.attempt}){why}; {cure}"


def _for_a_resume(view: RewindView, _job: Job | None, _now: datetime) -> str:
    paused = view.backfill is not None and view.backfill.paused and view.step("backfill").state != DONE
    return f"the backfill is paused; `python -m rewind resume {view.id}` lets it go on" if paused else ""


def _for_a_person(view: RewindView, _job: Job | None, _now: datetime) -> str:
    if view.verdict is None or view.step("validate").state != DONE:
        return ""
    if view.approval is not None:
        return "it was rejected: abort it" if view.approval.answer == "reject" else ""
    if view.verdict.verdict == lifecycle.ERROR:
        return f"the verdict is an error ({view.verdict.reason}): mend the cause and clear validate"
    automatic = view.plan.request.auto_approve and view.verdict.verdict == lifecycle.PASS
    return "" if automatic else f"verdict {view.verdict.verdict}: answer its approve task in Airflow"


def _for_the_driver(view: RewindView, job: Job | None, _now: datetime) -> str:
    if job is None or view.step("catch_up").state != RUNNING:
        return ""
    if job.driver.state in ("alive", "starting"):
        return f"{job.job_id} is {'an unknown number' if job.lag is None else job.lag} of offsets behind Kafka"
    return f"the driver of {job.job_id} is {job.driver.state}: {job.driver.last_failure or 'it has not started'}"


def _for_the_observation(view: RewindView, _job: Job | None, now: datetime) -> str:
    observed = view.step("observe")
    if observed.state != RUNNING or observed.seconds is None:
        return ""
    until = now + timedelta(seconds=view.plan.request.observe_seconds - observed.seconds)
    return f"observed until about {until:%H:%M:%S}Z; `python -m rewind finish {view.id}` ends that"
