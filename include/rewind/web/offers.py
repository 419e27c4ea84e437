"""What a person may do about a rewind now, the run or record that does it, and what will happen then."""

from __future__ import annotations

from dataclasses import dataclass

from rewind.core import comparing, lifecycle
from rewind.registry import verdicts
from rewind.runtime.drivers.driver_state import DRIVEN
from rewind.views.status import PipelineView
from rewind.views.status_rewinds import RewindView
from rewind.views.status_steps import DONE, PENDING, RUNNING

APPROVE, REJECT, PAUSE, RESUME, THROTTLE = "approve", "reject", "pause", "resume", "throttle"
ABORT, FINISH, ROLL_BACK = "abort", "finish", "roll_back"
NOTHING, OPTIONAL, NEEDED, RATE = "", "reason", "reason needed", "rate"
"""What an action asks for besides a yes."""
DAGS = {
    APPROVE: "rewind",
    REJECT: "rewind",
    PAUSE: "rewind",
    RESUME: "rewind",
    THROTTLE: "rewind",
    FINISH: "rewind",
    ABORT: "abort",
    ROLL_BACK: "rollback",
}
"""The kind of DAG that a person must be allowed to run for each action."""


@dataclass(frozen=True)
class Offer:
    """One action.

    Attributes:
        name: Its name.
        label: What its button says.
        consequence: What will happen, told before it does.
        asks: `reason`, `reason needed`, `rate` (records a second, empty lifts the limit) or nothing.
    """

    name: str
    label: str
    consequence: str
    asks: str


def dag_of(action: str, pipeline: str) -> str:
    """Return the DAG that a person must be allowed to run to act on a pipeline."""
    return f"{DAGS[action]}_{pipeline}"


def offers(pipeline: PipelineView, rewind: RewindView) -> tuple[Offer, ...]:
    """Return what may be done about a rewind now, in the order of a page."""
    if rewind.state == lifecycle.ACTIVE:
        made = (*_answers(pipeline, rewind), *_pace(rewind), *_ends(pipeline, rewind))
        return (*made, *_way_back(pipeline, rewind))
    return _way_back(pipeline, rewind)


def _answers(pipeline: PipelineView, rewind: RewindView) -> tuple[Offer, ...]:
    verdict = rewind.verdict
    if verdict is None or rewind.approval is not None or rewind.step("approve").state != RUNNING:
        return ()
    no = Offer(REJECT, "Reject", f"The rewind is aborted and {rewind.job_id} deleted. Live is untouched.", OPTIONAL)
    if verdict.verdict == lifecycle.ERROR:
        return (no,)
    asks = NEEDED if verdicts.needs_reason(verdict) else OPTIONAL
    nothing = f"{comparing.NOTHING.capitalize()}. " if verdict.verdict == lifecycle.UNCOMPARED else ""
    return (Offer(APPROVE, "Approve", nothing + _switch(pipeline, rewind), asks), no)


def _switch(pipeline: PipelineView, rewind: RewindView) -> str:
    if rewind.plan.shape.repairs:
        return f"The repaired rows go to the output of {rewind.live_job_id}."
    return (
        f"{rewind.job_id} becomes live instead of {rewind.live_job_id}, which {_standby(pipeline, rewind)}. "
        f"Readers go to {rewind.plan.output_topic}."
    )


def _standby(pipeline: PipelineView, rewind: RewindView) -> str:
    """Return what the job that is replaced does then: without a driver it answers nothing."""
    old = next((job for job in pipeline.jobs if job.job_id == rewind.live_job_id), None)
    if old is None or old.driver.state in DRIVEN:
        return f"is standby for {rewind.plan.request.grace_seconds} s"
    return f"has no driver ({old.driver.state}): it is not standby, and a rollback is refused until it runs"


def _pace(rewind: RewindView) -> tuple[Offer, ...]:
    backfill = rewind.backfill
    if backfill is None or rewind.step("backfill").state == DONE:
        return ()
    limit = Offer(THROTTLE, "Throttle", "From its next chunk the backfill keeps to this limit.", RATE)
    if backfill.paused:
        return (Offer(RESUME, "Resume", "The backfill goes on where it stopped.", NOTHING), limit)
    return (Offer(PAUSE, "Pause", "The backfill stops after its chunk, until it is resumed.", NOTHING), limit)


def _ends(pipeline: PipelineView, rewind: RewindView) -> tuple[Offer, ...]:
    if pipeline.live != rewind.job_id and rewind.step("cut_over").state in (PENDING, "failed"):
        text = f"{rewind.job_id} is stopped and all that this rewind made is deleted. Live is untouched."
        return (Offer(ABORT, "Abort", text, OPTIONAL),)
    if rewind.step("observe").state == RUNNING:
        text = "The observation ends at its next look, and the rewind with it. The old job is standby until grace ends."
        return (Offer(FINISH, "Finish now", text, NOTHING),)
    return ()


def _way_back(pipeline: PipelineView, rewind: RewindView) -> tuple[Offer, ...]:
    old = next((job for job in pipeline.jobs if job.job_id == rewind.live_job_id), None)
    if pipeline.live != rewind.job_id or old is None or old.state != lifecycle.STANDBY:
        return ()
    text = (
        f"{old.job_id} becomes live again within a minute, once it has passed what {rewind.job_id} has answered. "
        f"{rewind.job_id} becomes standby. Readers go back to {old.output_topic}."
    )
    return (Offer(ROLL_BACK, "Roll back", text, OPTIONAL),)
