"""Compare a candidate with live, write the evidence and store the verdict."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from rewind.adapters import outputs
from rewind.adapters.session import session
from rewind.core import comparing, lifecycle
from rewind.core.crash import side_effect
from rewind.core.horizon import Frontier, horizon
from rewind.core.model import Generation
from rewind.core.offsets import Ranges, ends, starts, total
from rewind.core.pipeline import VOLATILE, Pipeline
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.declared import expectations
from rewind.registry import check_results, generations, observation, progress, rewinds, verdicts
from rewind.registry.check_results import Checked
from rewind.registry.database import now, reading, writing
from rewind.registry.verdicts import Verdict
from rewind.runtime import evidence, rights
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import recording
from rewind.steps.compare import (
    compared_values,
    comparison,
    expectation_checks,
    findings,
    late_counts,
    nothing_compared,
    null_gate,
    resumed,
    state_comparison,
)
from rewind.steps.compare.findings import Found
from rewind.steps.compare.null_gate import Nulls
from rewind.steps.compare.resumed import TakenUp
from rewind.transforms.comparing.compare import EQUAL, EXPECTED
from rewind.transforms.comparing.keyed import Bounds

log = logging.getLogger(__name__)


def run(settings: Settings, rewind_id: str) -> None:
    """Judge the candidate of a rewind; what cannot be answered is stored as an error, and raised.

    Raises:
        RefusedError: The rewind is not active.
    """
    recording.recorded(settings, rewind_id, "validate", lambda attempt: _validate(settings, rewind_id, attempt))


@dataclass(frozen=True)
class _Check:
    """What is judged: an attempt at it, and the attempt at the backfill that made the output."""

    settings: Settings
    rewind_id: str
    attempt: int
    backfilled: int
    plan: Plan
    live: Generation
    candidate: Generation

    @property
    def pipeline(self) -> Pipeline:
        """The candidate's frozen configuration."""
        return self.candidate.declared

    @property
    def identity(self) -> str:
        """What tells it from checks of other outputs, or by other rules."""
        return check_results.identity(self.live, self.candidate, self.backfilled)


@dataclass
class _Judged:
    """What was found so far; until all is answered it is an error."""

    horizon: Ranges = field(default_factory=dict)
    bounds: Bounds | None = None
    found: Found = field(default_factory=lambda: Found({}))
    taken_up: TakenUp | None = None
    nulls: Nulls | None = None
    verdict: str = lifecycle.ERROR
    reason: str = ""
    beside: dict[str, Any] = field(default_factory=dict)

    def gate(self, gated: tuple[str, str]) -> None:
        """Take the verdict and the reason that a gate leaves."""
        self.verdict, self.reason = gated


def _validate(settings: Settings, rewind_id: str, attempt: int) -> dict[str, Any]:
    with reading(settings.registry_url) as connection:
        _, plan = rewinds.read_active(connection, rewind_id)
        jobs = [generations.read(connection, job_id) for job_id in (plan.live_job_id, plan.job_id)]
        backfilled = rewinds.last_attempt(connection, rewind_id, "backfill", "done")
    check, judged = _Check(settings, rewind_id, attempt, backfilled, plan, *jobs), _Judged()
    if plan.request.compare == comparing.NONE:
        judged.found = Found({"rows": 0})
        judged.gate((lifecycle.UNCOMPARED, comparing.told(plan.request.reason)))
    else:
        rights.before_comparing(Broker(settings), jobs)
        _examine(check, judged)
    _store(check, judged)
    counts, beside = dict(judged.found.counts), judged.beside
    log.info("verdict: %s %s %s %s", judged.verdict, judged.reason, json.dumps(counts), json.dumps(beside, default=str))
    told = {"verdict": judged.verdict, "reason": judged.reason, "counts": counts, "fields": dict(judged.found.fields)}
    return {**told, **beside}


def _examine(check: _Check, judged: _Judged) -> None:
    spark = session(f"validate {check.plan.job_id}", check.plan.config["session_time_zone"])
    try:
        for gate in (_compare, _gate_nulls, _gate_by_expectations, _gate_by_state):
            gate(spark, check, judged)
    except Exception as error:
        # Whatever went wrong was not answered, and what is not answered must stop the cut-over.
        judged.found, judged.verdict, judged.reason = Found({}), lifecycle.ERROR, repr(error)
        _store(check, judged)
        raise


def _compare(spark: SparkSession, check: _Check, judged: _Judged) -> None:
    settings, live, candidate = check.settings, check.live, check.candidate
    judged.horizon = nothing_compared.awaited(lambda: horizon_of(spark, settings, check.plan, live, candidate))
    judged.bounds = comparison.bounds_of(settings, live, candidate, touches=check.plan.touches)
    judged.taken_up = resumed.go_on(spark, settings, live, candidate, judged.horizon, _before(check))
    if judged.taken_up is None:
        judged.found = comparison.compared(spark, settings, live, candidate, judged.horizon, judged.bounds)
    else:
        judged.found = findings.counted(judged.taken_up.found, check.pipeline.row_rules)
        judged.beside["taken_up"] = {"attempt": judged.taken_up.before.attempt, "from": starts(judged.taken_up.came)}
    judged.gate(findings.judge(judged.found, total(judged.horizon), check.pipeline.late_share))
    if judged.verdict == lifecycle.ERROR:
        judged.reason += f"; {nothing_compared.cure(settings, live)}"
    if check.pipeline.rules:
        judged.beside["rules"] = [asdict(rule) for rule in check.pipeline.rules]
    if check.pipeline.row_rules:
        met = judged.found.fields.get(EXPECTED, {})
        judged.beside["row_rules"] = [{**asdict(r), "found": met.get(r.label, 0)} for r in check.pipeline.row_rules]
    if volatile := findings.likely_volatile(judged.found):
        judged.beside["likely_volatile"] = volatile
        judged.reason += f"; {', '.join(volatile)} in all rows: name it in compare.volatile if it may differ"


def _before(check: _Check) -> Checked | None:
    """Return the last check of the same outputs; those of a repair are small, and read whole."""
    if check.plan.shape.repairs:
        return None
    with reading(check.settings.registry_url) as connection:
        return check_results.last(connection, check.rewind_id, check.identity)


def _values(spark: SparkSession, check: _Check, judged: _Judged) -> list[DataFrame]:
    jobs = (check.live, check.candidate)
    return compared_values.both(spark, check.settings, *jobs, judged.horizon, judged.bounds)


def _gate_nulls(spark: SparkSession, check: _Check, judged: _Judged) -> None:
    counts = judged.found.counts
    # Rows that are all equal are null alike, but for what a rule calls equal.
    if counts["rows"] == counts[EQUAL] and not check.pipeline.rules:
        return
    judged.nulls = _nulls(spark, check, judged)
    shares = judged.nulls.shares()
    volatile = [rule.column for rule in check.pipeline.rules if rule.kind == VOLATILE]
    judged.gate(null_gate.gated(judged.verdict, judged.reason, shares, check.pipeline.null_share, volatile))
    # An empty table would look like columns that are never null.
    told = {"not_compared": null_gate.NO_VALUES} if 0 in judged.nulls.values else {}
    judged.beside["null_shares"] = told or {name: asdict(share) for name, share in shares.items()}


def _nulls(spark: SparkSession, check: _Check, judged: _Judged) -> Nulls:
    jobs, went_on = (check.live, check.candidate), judged.taken_up
    if went_on is None or went_on.before.nulls is None:
        return null_gate.counted(_values(spark, check, judged), *jobs)
    new = null_gate.counted(went_on.values(spark, check.settings, *jobs), *jobs)
    return Nulls(**went_on.before.nulls).plus(new)


def _gate_by_expectations(spark: SparkSession, check: _Check, judged: _Judged) -> None:
    """Ask Great Expectations about the candidate's output and about what was counted."""
    asked = check.pipeline.expectations
    if not asked:
        return
    # It reads them once an expectation, from wherever they lie.
    values = _values(spark, check, judged)[1]
    rows = compared_values.columns(values, check.candidate).persist(StorageLevel.DISK_ONLY)
    frames = {expectations.OUTPUT: rows, expectations.DIFFERENCES: expectation_checks.summary(spark, judged.found)}
    try:
        docs = evidence.folder_of(check.settings, check.rewind_id) / f"{evidence.DOCS}{check.attempt}"
        answers = expectation_checks.answers(asked, frames, docs)
    finally:
        rows.unpersist()
    judged.gate(expectation_checks.gated(judged.verdict, judged.reason, answers))
    judged.beside["expectations"] = [asdict(answer) for answer in answers]


def _gate_by_state(spark: SparkSession, check: _Check, judged: _Judged) -> None:
    bounds = judged.bounds
    if bounds is None or bounds.touches is not None:
        return
    jobs = (check.live, check.candidate)
    kept = state_comparison.compared(spark, check.settings, *jobs, bounds.trusted_from)
    judged.gate(state_comparison.gated(judged.verdict, judged.reason, kept, check.pipeline))
    judged.beside["state"] = asdict(kept)
    judged.beside["late_records"] = late_counts.late_records(spark, check.settings, *jobs)


def horizon_of(spark: SparkSession, settings: Settings, plan: Plan, live: Generation, candidate: Generation) -> Ranges:
    """Return on what live and candidate can be compared now."""
    with reading(settings.registry_url) as connection:
        live_position = progress.position(connection, live.job_id, live.handoff)
        position = progress.position(connection, candidate.job_id, candidate.handoff)
    whole = outputs.first_whole(spark, settings, live)
    if plan.shape.bounded:
        position = dict(plan.end)
    return horizon(candidate.start, live.start, whole, position, live_position)


def _store(check: _Check, judged: _Judged) -> None:
    floor, ceiling = starts(judged.horizon), ends(judged.horizon)
    found, bounds = judged.found, judged.bounds
    made = Verdict(
        check.attempt,
        check.backfilled,
        judged.verdict,
        floor,
        ceiling,
        found.counts,
        found.sample,
        judged.reason,
        now(),
    )
    told = {"fields": found.fields, "bounds": None if bounds is None else asdict(bounds), **judged.beside}
    body = {**asdict(made), "about": evidence.about(check.rewind_id, check.plan), **told}
    evidence.write(check.settings, check.rewind_id, f"verdict-{check.attempt}", body)
    with side_effect("verdict.store"), writing(check.settings.registry_url) as connection:
        verdicts.store(connection, check.rewind_id, made)
        frontier = Frontier(ceiling, found.unread, 0 if bounds is None else bounds.closed_by, found.ends)
        observation.keep_frontier(connection, check.rewind_id, check.attempt, frontier)
        if judged.verdict in (lifecycle.PASS, lifecycle.FAIL):
            kept = (found.counts, found.fields, found.sample, None if judged.nulls is None else asdict(judged.nulls))
            done = Checked(check.attempt, check.identity, floor, frontier, *kept)
            check_results.keep(connection, check.rewind_id, done)
