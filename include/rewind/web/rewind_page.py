"""The page of one rewind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection

from rewind.core.planning import plan
from rewind.core.settings import Settings
from rewind.registry import rewinds
from rewind.registry.snapshot import snapshot
from rewind.runtime import evidence
from rewind.views.lag_history import Lag, lag_history
from rewind.views.status import PipelineView, Status
from rewind.views.status_jobs import Job
from rewind.views.status_rewinds import Rewinds, RewindView
from rewind.web import files
from rewind.web.offers import offers
from rewind.web.wire import wire


def seen(settings: Settings, found: Status, rewind_id: str) -> tuple[PipelineView, RewindView]:
    """Return a rewind with its pipeline.

    Raises:
        RefusedError: There is none of that id.
    """
    with snapshot(settings.registry_url) as connection:
        rewind = rewinds.read(connection, rewind_id)
        pipeline = found.pipeline(rewind.pipeline)
        shown = next((one for one in pipeline.rewinds if one.id == rewind_id), None)
        if shown is not None:
            return pipeline, shown
        # One that ended long ago.
        held = Rewinds(connection, [rewind], found.at)
    (view,) = held.views({pipeline.name: pipeline.jobs})[pipeline.name]
    return pipeline, view


def rewind_page(settings: Settings, found: Status, rewind_id: str) -> dict[str, Any]:
    """Return what the page of a rewind shows, given its pipeline in full.

    Raises:
        RefusedError: There is none of that id.
    """
    pipeline, rewind = seen(settings, found, rewind_id)
    with snapshot(settings.registry_url) as connection:
        race = _race(connection, rewind)
        asked_by = rewinds.asked_by(connection, rewind_id)
    jobs = {job.job_id: job for job in pipeline.jobs}
    body = {
        "at": found.at,
        "problems": found.problems,
        "pipeline": pipeline.name,
        "live": pipeline.live,
        "epoch": pipeline.epoch,
        "rewind": {**_head(rewind), "asked_by": asked_by},
        "plan": plan.explain(rewind.plan),
        "steps": rewind.steps,
        "backfill": rewind.backfill,
        "candidate": _job(jobs.get(rewind.job_id)),
        "replaced": _job(jobs.get(rewind.live_job_id)),
        "race": race,
        "verdict": rewind.verdict,
        "approval": rewind.approval,
        "observed": None if rewind.observed is None else {**asdict(rewind.observed), "told": rewind.observed.told()},
        "deletions": [d for d in pipeline.deletions if d.job_id in (rewind.job_id, rewind.live_job_id)],
        "garbage": [g for g in pipeline.garbage if g.job_id in (rewind.job_id, rewind.live_job_id)],
        "evidence": files.listed(evidence.folder_of(settings, rewind.id)),
        "docs": files.docs_of(evidence.folder_of(settings, rewind.id)),
        "logs": {owner: files.listed(files.logs_folder(settings, owner)) for owner in _streams(rewind, jobs)},
        "offers": offers(pipeline, rewind),
    }
    return dict(wire(body))


def _head(rewind: RewindView) -> dict[str, Any]:
    names = ("id", "state", "job_id", "live_job_id", "reason", "created_at", "ended_at", "handoff", "waits")
    head = {name: getattr(rewind, name) for name in names}
    return {**head, "kind": rewind.plan.kind, "plan_id": rewind.plan.id, "differences": rewind.plan.differences}


def _job(job: Job | None) -> dict[str, Any] | None:
    names = (
        "job_id",
        "state",
        "position",
        "lag",
        "rate",
        "watermark",
        "last_batch_at",
        "driver",
        "output_topic",
        "note",
    )
    return None if job is None else {name: getattr(job, name) for name in names}


def _race(connection: Connection, rewind: RewindView) -> dict[str, Any] | None:
    if rewind.handoff is None:
        return None
    points: list[Lag] = lag_history(connection, rewind.job_id, rewind.live_job_id, rewind.handoff)
    fixed_at = rewinds.fact_at(connection, rewind.id, "handoff")
    return {"points": points, "gate": rewind.plan.config["lag_gate"], "handoff_at": fixed_at}


def _streams(rewind: RewindView, jobs: Mapping[str, Job]) -> list[str]:
    return [job_id for job_id in (rewind.job_id, rewind.live_job_id) if job_id in jobs]
