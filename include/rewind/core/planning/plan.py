"""A plan: the value that apply, the dry run, the status view and the tests all read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from rewind.core import comparing, names
from rewind.core.offsets import OffsetRange, Ranges, Vector, to_spark_json, total
from rewind.core.pipeline import TOMBSTONE, Pipeline
from rewind.core.planning.differences import Difference
from rewind.core.planning.stages import SHAPES, Shape, Stage, explained, stages
from rewind.core.times import format_instant


@dataclass(frozen=True)
class Request:
    """What a user asks for, as the trigger form gives it.

    Attributes:
        pipeline: Name of the pipeline.
        start: Where from, in one of the forms of `rewind.core.planning.requested_range`.
        end: Where to, exclusive, in the same forms; empty unless a repair is wanted.
        overrides: Settings of the pipeline that the candidate gets another value of.
        reason: Why, for the history.
        accept_gaps: Offsets that the mirror lacks and that may be skipped, as Spark offsets JSON of
            lists, `{"visits":{"0":[[3,4],[6,8]]}}`; empty for none.
        same_code: Whether to go on when nothing differs from live.
        auto_approve: Whether a passing verdict needs no person.
        observe_seconds: How long the switched pipeline is watched before the rewind ends.
        grace_seconds: How long after the cut-over the old generation is kept for a rollback.
        repair_into: `live` or `beside`: where a repair's rows go.
        consumer_groups: Groups that read live's output, to be moved to the candidate's at the switch.
        only_new: `keep` or `replay`: what becomes of records that only the candidate has below their positions.
        replay_from: With `replay`, from where on, as the form gives it.
        on_difference: `tell` or `roll_back`: what is done when differences appear while the switch is observed.
        compare_every_seconds: Pause between two comparisons then; 0 for pauses that grow.
        compare: `rows` or `none`: whether the outputs are compared at all (`core.comparing`).
    """

    pipeline: str
    start: str = "earliest"
    end: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    accept_gaps: str = ""
    same_code: bool = False
    auto_approve: bool = False
    observe_seconds: int = 900
    grace_seconds: int = 3600
    repair_into: str = "live"
    consumer_groups: tuple[str, ...] = ()
    only_new: str = "keep"
    replay_from: str = "earliest"
    on_difference: str = "tell"
    compare_every_seconds: int = 0
    compare: str = comparing.ROWS


@dataclass(frozen=True)
class Plan:
    """All that one rewind will do, decided before anything is done.

    Attributes:
        kind: `rewind`, `repair` or `release`.
        request: What was asked for.
        job_id: The job it will make.
        live_job_id: The live job when the plan was made.
        epoch: The pointer's epoch then.
        topic: Source topic.
        topic_id: Its id.
        start: First offset of the range, per partition.
        end: Offset after the last one for a repair; for a rewind the end of what could be read when the plan was made.
        mirror_version: Version of the mirror whose history the plan needs.
        records: Records of the range that the mirror holds (an estimate beyond the mirror's end).
        bytes: Their bytes.
        chunks: Chunks that the backfill will take.
        estimate_seconds: How long the backfill should take.
        differences: What differs from live.
        config: The candidate's frozen configuration.
        bundle: Hash of the candidate's code.
        output_schema: DDL of the columns that its logic gives.
        state: What state it keeps, operator by operator.
        output_topic: Where the candidate will write.
        dead_letter_topic: Where it will write what it rejects.
        accepted_gaps: Holes of the mirror that the request accepted.
        warnings: What the user should know before going on.
        asked: The start that was asked for; `start` lies before it where results were open at it.
        touches: For a repair of a pipeline with state, the event time whose results it makes anew, `[from, to)` in
            milliseconds since 1970; None for all else.
        trusted_from: For a pipeline with state, results that start before this instant are neither compared nor
            published, in milliseconds since 1970; None when all are whole.
        id: Hash of all of the above.
    """

    kind: str
    request: Request
    job_id: str
    live_job_id: str
    epoch: int
    topic: str
    topic_id: str
    start: Vector
    end: Vector
    mirror_version: int
    records: int
    bytes: int
    chunks: int
    estimate_seconds: float
    differences: tuple[Difference, ...]
    config: Mapping[str, Any]
    bundle: str
    output_schema: str
    output_topic: str
    dead_letter_topic: str
    accepted_gaps: Mapping[int, tuple[OffsetRange, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    asked: Vector = field(default_factory=dict)
    touches: tuple[int, int] | None = None
    trusted_from: int | None = None
    id: str = ""

    def premises(self) -> dict[str, Any]:
        """Return what must still hold when the plan is applied."""
        return {
            "live_job_id": self.live_job_id,
            "epoch": self.epoch,
            "topic_id": self.topic_id,
            "partitions": sorted(self.end),
            "bundle": self.bundle,
            "job_id": self.job_id,
        }

    def ranges(self) -> Ranges:
        """Return the range of each partition."""
        return {p: OffsetRange(min(self.start[p], self.end[p]), self.end[p]) for p in sorted(self.end)}

    def to_json(self) -> str:
        """Return the plan as JSON text, keys in order."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @property
    def shape(self) -> Shape:
        """What tells its kind from the others."""
        return SHAPES[self.kind]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What each task of its DAG will do."""
        asked = self.request
        return stages(
            self.shape,
            lag_gate=int(self.config.get("lag_gate", 0)),
            observe_seconds=asked.observe_seconds,
            compare=asked.compare,
            auto_approve=asked.auto_approve,
            on_difference=asked.on_difference,
        )

    @cached_property
    def declared(self) -> Pipeline:
        """What the candidate's pipeline says.

        Raises:
            RefusedError: It holds a setting that this release does not know.
        """
        return Pipeline.from_frozen(self.config)


def sealed(plan: Plan) -> Plan:
    """Return the plan with its id, the hash of its content."""
    body = replace(plan, id="").to_json()
    return replace(plan, id=hashlib.sha256(body.encode()).hexdigest()[:12])


def from_json(text: str) -> Plan:
    """Return the plan that `to_json` wrote."""
    body = json.loads(text)
    asked = body["request"]
    body["request"] = Request(**{**asked, "consumer_groups": tuple(asked.get("consumer_groups", ()))})
    body["start"] = {int(p): o for p, o in body["start"].items()}
    body["end"] = {int(p): o for p, o in body["end"].items()}
    body["asked"] = {int(p): o for p, o in body.get("asked", {}).items()}
    body["differences"] = tuple(Difference(**d) for d in body["differences"])
    gaps = body["accepted_gaps"].items()
    body["accepted_gaps"] = {int(p): tuple(OffsetRange(**r) for r in ranges) for p, ranges in gaps}
    body["warnings"] = tuple(body["warnings"])
    body["state"] = tuple(body.get("state", ()))
    body["touches"] = tuple(body["touches"]) if body.get("touches") else None
    return Plan(**body)


def _shared(plan: Plan) -> list[str]:
    # A plan of an older release says nothing of it.
    if not plan.config.get("shared"):
        return []
    name = names.shared_output(plan.config["output_topic"])
    fate = "get a tombstone" if plan.config["vanished"] == TOMBSTONE else "are kept"
    return [f"  shared   {name}, merged after the switch; keys of the range that only {plan.live_job_id} has {fate}"]


def _moved(plan: Plan) -> list[str]:
    lines = []
    if plan.asked and plan.asked != plan.start:
        lines.append(f"           moved back from {to_spark_json(plan.topic, plan.asked)}: results were open there")
    if plan.touches is not None:
        first, end = (format_instant(datetime.fromtimestamp(at / 1000, UTC)) for at in plan.touches)
        lines.append(f"  repairs  all results that touch event time from {first} to {end}, from all their records")
    if plan.trusted_from is not None:
        first = format_instant(datetime.fromtimestamp(plan.trusted_from / 1000, UTC))
        lines.append(f"  trusted  results from {first} on; earlier ones are warm-up, neither compared nor published")
    return lines


def explain(plan: Plan) -> list[str]:
    """Return the plan as lines for a person: what a dry run prints."""
    lines = [
        f"Plan {plan.id}: {plan.kind} of {plan.request.pipeline} as {plan.job_id}, beside {plan.live_job_id}",
        f"  from     {to_spark_json(plan.topic, plan.start)}  (asked: {plan.request.start})",
        *_moved(plan),
        f"  to       {to_spark_json(plan.topic, plan.end)}"
        + ("" if plan.shape.bounded else "  (the end of what can be read now; it moves on)"),
        f"  records  {plan.records:,} in {plan.bytes:,} bytes; offsets {total(plan.ranges()):,}",
        f"  backfill {plan.chunks} chunks, about {plan.estimate_seconds:.0f} s",
        f"  output   {plan.output_topic}, dead letters to {plan.dead_letter_topic}",
        *_shared(plan),
    ]
    lines += [f"  differs  {d.what}: {d.live or 'absent'} -> {d.candidate or 'absent'}" for d in plan.differences]
    if any(difference.what == "state" for difference in plan.differences):
        lines.append(f"           {plan.live_job_id} could not go on with this code; beside it, the state is rebuilt")
    lines += [
        f"  gap      partition {p} [{r.start}, {r.end}) accepted" for p, rs in plan.accepted_gaps.items() for r in rs
    ]
    if plan.request.compare == comparing.NONE:
        lines.append(f"  compare  nothing, and a person has to approve; why: {plan.request.reason.strip()}")
    lines += explained(plan.stages)
    lines += [f"  warning  {warning}" for warning in plan.warnings]
    lines.append(f"Apply it with apply_plan={plan.id} and dry_run off.")
    return lines
