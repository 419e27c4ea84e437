"""Compare a candidate with live, write the evidence and store the verdict."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from rewind.adapters import outputs
from rewind.adapters.session import session
from rewind.control import evidence, generations, observing, progress, rewinds, suites, verdicts
from rewind.control.database import now, transaction
from rewind.control.verdicts import Verdict
from rewind.core import lifecycle
from rewind.core.crash import side_effect
from rewind.core.horizon import Frontier, horizon
from rewind.core.offsets import Ranges, ends, starts, total
from rewind.core.pipeline import Pipeline, thaw
from rewind.core.plan import REPAIR, Plan
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.steps import compared_values, comparison, expectations, left_out, main, null_gate, state_comparison
from rewind.steps.comparison import Found
from rewind.steps.expectations import Answer
from rewind.transforms.compare import EQUAL
from rewind.transforms.keyed import Bounds

log = logging.getLogger(__name__)


def run(settings: Settings, rewind_id: str) -> None:
    """Judge the candidate of a rewind; what cannot be answered is stored as an error, and raised.

    Raises:
        RefusedError: The rewind is not active.
    """
    main.recorded(settings, rewind_id, "validate", lambda attempt: _validate(settings, rewind_id, attempt))


def _validate(settings: Settings, rewind_id: str, attempt: int) -> dict[str, Any]:
    with transaction(settings.registry_url) as connection:
        _, plan = rewinds.read_active(connection, rewind_id)
        live = generations.read(connection, plan.live_job_id)
        candidate = generations.read(connection, plan.job_id)
        backfilled = rewinds.last_attempt(connection, rewind_id, "backfill", "done")
    spark = session(f"validate {plan.job_id}", plan.config["session_time_zone"])
    frozen: Ranges = {}
    bounds: Bounds | None = None
    beside: dict[str, Any] = {}
    try:
        frozen = horizon_of(spark, settings, plan, live, candidate)
        bounds = comparison.bounds_of(settings, live, candidate, touches=plan.touches)
        found = comparison.compared(spark, settings, live, candidate, frozen, bounds)
        pipeline = thaw(candidate.frozen["config"])
        verdict, reason = comparison.judge(found, total(frozen), pipeline.late_share)
        if volatile := comparison.likely_volatile(found):
            beside["likely_volatile"] = volatile
            reason = f"{reason}; {', '.join(volatile)} in all rows: name it in compare.volatile if it may differ"
        if found.counts["rows"] != found.counts[EQUAL] or pipeline.rules:
            # Rows that are all equal are null alike, but for what a rule calls equal.
            nulls = null_gate.shares(spark, settings, live, candidate, frozen, bounds)
            verdict, reason = null_gate.gated(verdict, reason, nulls, pipeline.null_share)
            beside["null_shares"] = {name: asdict(share) for name, share in nulls.items()}
        if pipeline.expectations:
            values = compared_values.both(spark, settings, live, candidate, frozen, bounds)[1]
            docs = evidence.folder_of(settings, rewind_id) / f"data-docs-{attempt}"
            answers = _answers(pipeline, candidate, values, found, docs)
            verdict, reason = expectations.gated(verdict, reason, answers)
            beside["expectations"] = [asdict(answer) for answer in answers]
        if bounds is not None and bounds.touches is None:
            kept = state_comparison.compared(spark, settings, live, candidate, bounds.trusted_from)
            verdict, reason = state_comparison.gated(verdict, reason, kept, pipeline)
            beside["state"] = asdict(kept)
            beside["late_records"] = left_out.late_records(spark, settings, live, candidate)
    except Exception as error:
        # Whatever went wrong was not answered, and what is not answered must stop the cut-over.
        _store(
            settings,
            rewind_id,
            plan,
            attempt,
            backfilled,
            frozen,
            bounds,
            Found({}),
            lifecycle.ERROR,
            repr(error),
            beside,
        )
        raise
    _store(settings, rewind_id, plan, attempt, backfilled, frozen, bounds, found, verdict, reason, beside)
    log.info("verdict: %s %s %s %s", verdict, reason, json.dumps(dict(found.counts)), json.dumps(beside))
    return {"verdict": verdict, "reason": reason, "counts": dict(found.counts), "fields": dict(found.fields), **beside}


def horizon_of(spark: SparkSession, settings: Settings, plan: Plan, live: Generation, candidate: Generation) -> Ranges:
    """Return on what live and candidate can be compared now."""
    with transaction(settings.registry_url) as connection:
        live_position = progress.position(connection, live.job_id, live.handoff)
        position = progress.position(connection, candidate.job_id, candidate.handoff)
    whole = outputs.first_whole(spark, settings, live)
    if plan.kind == REPAIR:
        position = dict(plan.end)
    return horizon(candidate.start, live.start, whole, position, live_position)


def _answers(pipeline: Pipeline, candidate: Generation, values: DataFrame, found: Found, docs: Path) -> list[Answer]:
    """Ask Great Expectations about the candidate's output and about what was counted."""
    # It reads them once an expectation, from wherever they lie.
    rows = compared_values.columns(values, candidate).persist(StorageLevel.DISK_ONLY)
    frames = {suites.OUTPUT: rows, suites.DIFFERENCES: expectations.summary(values.sparkSession, found)}
    try:
        return expectations.answers(pipeline.expectations, frames, docs)
    finally:
        rows.unpersist()


def _store(
    settings: Settings,
    rewind_id: str,
    plan: Plan,
    attempt: int,
    backfilled: int,
    frozen: Ranges,
    bounds: Bounds | None,
    found: Found,
    verdict: str,
    reason: str,
    beside: Mapping[str, Any],
) -> None:
    floor, ceiling = starts(frozen), ends(frozen)
    made = Verdict(attempt, backfilled, verdict, floor, ceiling, found.counts, found.sample, reason, now())
    told = {"fields": found.fields, "bounds": None if bounds is None else asdict(bounds), **beside}
    body = {**asdict(made), "about": evidence.about(rewind_id, plan), **told}
    evidence.write(settings, rewind_id, f"verdict-{attempt}", body)
    with side_effect("verdict.store"), transaction(settings.registry_url) as connection:
        verdicts.store(connection, rewind_id, made)
        closed = 0 if bounds is None else bounds.closed_by
        observing.keep_frontier(connection, rewind_id, attempt, Frontier(ceiling, found.unread, closed))
