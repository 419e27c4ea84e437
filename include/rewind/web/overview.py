"""The first page: each pipeline on one card."""

from __future__ import annotations

from typing import Any

from rewind.core import lifecycle
from rewind.core.model import held_back
from rewind.core.nights import DRIFTED, ERROR
from rewind.views.status import PipelineView, Status
from rewind.views.status_jobs import Job
from rewind.views.status_mirrors import Mirror
from rewind.views.status_nights import last_answer
from rewind.views.status_rewinds import RewindView
from rewind.views.status_steps import DONE
from rewind.web.wire import wire

NOTHING_LIVE = "nothing is deployed"


def overview(found: Status) -> dict[str, Any]:
    """Return what the first page shows."""
    mirrors = {mirror.topic: mirror for mirror in found.mirrors}
    cards = [_card(view, mirrors.get(view.source_topic)) for view in found.pipelines]
    body = {"at": found.at, "problems": found.problems, "registry_read": found.registry_read, "pipelines": cards}
    return dict(wire(body))


def _card(view: PipelineView, mirror: Mirror | None) -> dict[str, Any]:
    live = next((job for job in view.jobs if job.job_id == view.live), None)
    active = next((rewind for rewind in view.rewinds if rewind.state == lifecycle.ACTIVE), None)
    return {
        "name": view.name,
        "problem": view.problem,
        "source_topic": view.source_topic,
        "epoch": view.epoch,
        "live": None if live is None else _job(live),
        "others": [_job(job) for job in view.jobs if job.state in (lifecycle.CANDIDATE, lifecycle.STANDBY)],
        "mirror": mirror,
        "active": None if active is None else _active(active),
        "planning": [{"id": one.id, "told": one.told()} for one in view.planning],
        "last": next(({"id": r.id, "state": r.state} for r in view.rewinds if r is not active), None),
        "garbage": [{"job_id": g.job_id, "things": len(g.things), "waits": g.waits} for g in view.garbage],
        "nights": view.nights,
        "answer": answer(view, live, active),
    }


def answer(view: PipelineView, live: Job | None, active: RewindView | None) -> str:
    """Return in one sentence how a pipeline is: what is wrong first, then what it waits for, then what it does."""
    if view.problem:
        return f"broken: {view.problem}"
    if live is None:
        return NOTHING_LIVE
    if live.driver.state not in ("alive", "starting", "elsewhere"):
        return f"the driver of {live.job_id} is {live.driver.state}: {live.driver.why('no failure is known')}"
    if active is None and view.planning:
        return f"{view.planning[-1].id} is being planned"
    if active is None:
        watermark = live.watermark.told() if live.watermark else ""
        told = [f"{live.job_id} is live", *held_back(live.held or {}), watermark, _drift(view)]
        return "; ".join(text for text in told if text)
    return active.waits or f"{active.id} is at {step_of(active)}"


def _drift(view: PipelineView) -> str:
    last = last_answer(view.nights)
    return f"the nightly replay of {last.told()}" if last is not None and last.state in (DRIFTED, ERROR) else ""


def step_of(rewind: RewindView) -> str:
    """Return the step that a rewind is at: the first that is not done."""
    return next((step.name for step in rewind.steps if step.state != DONE), "its end")


def _job(job: Job) -> dict[str, Any]:
    names = ("job_id", "state", "lag", "rate", "watermark", "last_batch_at", "driver", "grace_until", "note")
    return {name: getattr(job, name) for name in names}


def _active(rewind: RewindView) -> dict[str, Any]:
    backfill = rewind.backfill
    done = None if backfill is None else [backfill.offsets_done, backfill.offsets]
    return {
        "id": rewind.id,
        "job_id": rewind.job_id,
        "step": step_of(rewind),
        "steps": [{"name": step.name, "state": step.state} for step in rewind.steps],
        "backfill": done,
        "seconds_left": None if backfill is None else backfill.seconds_left,
        "waits": rewind.waits,
    }
