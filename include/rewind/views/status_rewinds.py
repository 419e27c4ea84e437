"""The part of the view that shows rewinds: plan, steps, backfill, verdict, and what they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from rewind.core import causes, comparing, lifecycle
from rewind.core.model import held_back
from rewind.core.offsets import Vector
from rewind.core.planning.plan import Plan
from rewind.registry import observation, verdicts
from rewind.registry.observation import Observed
from rewind.registry.rewinds import Rewind
from rewind.registry.verdicts import Approval, Verdict
from rewind.runtime.drivers import step_lease
from rewind.views import rewind_rows
from rewind.views.status_backfill import Backfill, backfill_of
from rewind.views.status_jobs import Job
from rewind.views.status_steps import DONE, FAILED, RUNNING, Steps, StepView

WHY = ("error", "problem", "refused", "answer")
"""Fields in which the evidence of a failed step says why."""
FORWARD_ONLY = ("cut_over", "observe", "merge")
"""Steps after which there may be nothing to take back."""


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


class Rewinds:
    """What the registry holds of some rewinds, each table read once; nothing is looked for elsewhere meanwhile."""

    def __init__(self, connection: Connection, found: Sequence[Rewind], now: datetime) -> None:
        """Read it; times are counted to `now`, UTC without zone."""
        ids = [rewind.id for rewind in found]
        self._found = found
        self._plans = rewind_rows.plans(connection, found)
        self._steps = Steps(connection, ids, now)
        self._chunks = rewind_rows.chunks(connection, ids)
        self._controls = rewind_rows.controls(connection, ids)
        self._verdicts = verdicts.newest_of(connection, ids)
        self._observed = observation.read_all(connection, ids)
        self._now = now

    def views(self, jobs: Mapping[str, Sequence[Job]]) -> dict[str, tuple[RewindView, ...]]:
        """Return them by pipeline, in the order in which they were given, with what the jobs of each tell."""
        known = {job.job_id: job for mine in jobs.values() for job in mine}
        found: dict[str, tuple[RewindView, ...]] = {}
        for rewind in self._found:
            found[rewind.pipeline] = (*found.get(rewind.pipeline, ()), self._view(rewind, known))
        return found

    def _view(self, rewind: Rewind, jobs: Mapping[str, Job]) -> RewindView:
        plan, job = self._plans[rewind.plan_id], jobs.get(rewind.job_id)
        verdict, approval = self._verdicts.get(rewind.id, (None, None))
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
            steps=self._steps.of(rewind.id, plan.kind),
            backfill=backfill_of(self._chunks[rewind.id], self._controls.get(rewind.id, (False, None)), self._now),
            verdict=verdict,
            approval=approval,
            observed=self._observed.get(rewind.id),
            waits="",
        )
        waits = why_it_waits(view, job, self._now) if rewind.state == lifecycle.ACTIVE else ""
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
    why = next((f": {causes.headline(str(evidence[name]))}" for name in WHY if evidence.get(name)), "")
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
        return f"the verdict is an error ({view.verdict.reason}): fix the cause and clear validate"
    automatic = view.plan.request.auto_approve and view.verdict.verdict == lifecycle.PASS
    nothing = f" ({comparing.NOTHING})" if view.verdict.verdict == lifecycle.UNCOMPARED else ""
    return "" if automatic else f"verdict {view.verdict.verdict}{nothing}: answer its approve task in Airflow"


def _for_the_driver(view: RewindView, job: Job | None, _now: datetime) -> str:
    if job is None or view.step("catch_up").state != RUNNING:
        return ""
    if job.driver.state in ("alive", "starting"):
        far = f"{job.job_id} is {'an unknown number' if job.lag is None else job.lag} of offsets behind Kafka"
        return "; ".join((far, *held_back(job.held or {})))
    return f"the driver of {job.job_id} is {job.driver.state}: {job.driver.why('it has not started')}"


def _for_the_observation(view: RewindView, _job: Job | None, now: datetime) -> str:
    observed = view.step("observe")
    if observed.state != RUNNING or observed.seconds is None:
        return ""
    until = now + timedelta(seconds=view.plan.request.observe_seconds - observed.seconds)
    return f"observed until about {until:%H:%M:%S}Z; `python -m rewind finish {view.id}` ends that"
