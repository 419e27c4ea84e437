"""Make a plan from a request and a world that is only read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rewind.core import names
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.model import BrokerReader, Generation, LifecycleReader, MirrorReader, MirrorState, Topic
from rewind.core.offsets import OffsetRange, Vector, between, total
from rewind.core.periods import Dated
from rewind.core.pipeline import Pipeline
from rewind.core.planning import (
    consumer_groups,
    preflight,
    repair_windows,
    resolved_range,
    shared_output,
    time_range,
    warm_up,
)
from rewind.core.planning.differences import Difference, Version, differences
from rewind.core.planning.plan import Plan, Request, sealed
from rewind.core.planning.resolved_range import Sight
from rewind.core.planning.stages import Shape, asked_for

RECORDS_PER_SECOND = 10_000
"""Backfill speed assumed by the estimate, start-up and a busy machine included."""


@dataclass(frozen=True)
class Code:
    """The candidate's code, as far as a plan needs it.

    Attributes:
        bundle: Hash of the whole bundle.
        files: Hash of each file in it, by path.
        live_files: The same of live's bundle.
        output_schema: DDL of the columns that its logic gives.
        delay: How far the watermark of a logic with state lags behind event time, in milliseconds; 0 for none.
        state: What state it keeps, operator by operator (`contract.state_shape`).
    """

    bundle: str
    files: Mapping[str, str]
    live_files: Mapping[str, str]
    output_schema: str
    delay: int = 0
    state: tuple[str, ...] = ()


@dataclass(frozen=True)
class World:
    """What a planner reads.

    Attributes:
        broker: The broker.
        mirror: The mirror.
        lifecycle: The registry.
        free_bytes: Free on the data's disk.
        tables: Names of the output tables there are.
        mirror_keeps_seconds: How long the mirror keeps files that no newer version of it needs.
        undeclared: Fields that newest records hold and the schema does not declare.
    """

    broker: BrokerReader
    mirror: MirrorReader
    lifecycle: LifecycleReader
    free_bytes: int
    tables: Sequence[str] = ()
    mirror_keeps_seconds: float = preflight.MIRROR_KEEPS_SECONDS
    undeclared: Sequence[str] = ()


def make_plan(request: Request, pipeline: Pipeline, code: Code, world: World, now: datetime) -> Plan:
    """Return the plan of a request.

    Raises:
        RefusedError: The request cannot be carried out; nothing has been changed.
    """
    live, epoch = _live(request, world)
    _refuse_second(request, world)
    topic = _topic(pipeline, live, world)
    shape = asked_for(request.start, request.end)
    pipeline = _as_made(shape, pipeline, live)
    mirror = _mirror(topic, world)
    sight = Sight(topic, mirror, world.mirror, world.lifecycle.position(live.job_id), now)
    touches, dated = None, Dated()
    if shape.repairs and pipeline.stateful:
        touches = repair_windows.touched(request.start, request.end, live, world.lifecycle, topic.name, now)
        start, end = repair_windows.read_for(sight)
        asked, trusted = dict(start), None
    else:
        dated = time_range.dated(request.start, request.end, sight)
        asked = resolved_range.resolve(request.start, "from", sight, dated)
        start, trusted = _begin(shape, pipeline, code, asked, sight, live, world)
        end = resolved_range.resolve(request.end, "to", sight, dated) if shape.bounded else dict(topic.latest)
    resolved_range.check(shape, start, end, sight)
    accepted = resolved_range.gaps(request.accept_gaps, shape, start, end, sight)
    candidate = Version(pipeline.frozen(), code.state, code.files)
    found = differences(_version(live, code), candidate)
    _refuse_same(request, shape, found, live)
    _refuse_alone(request, pipeline, live)
    _refuse_other_kind(pipeline, live)
    there = {*world.broker.topics(), *world.tables}
    shared_output.refuse(shape, request.repair_into, pipeline, live, code.output_schema, there)
    _refuse_readers(request, pipeline, live)
    job = _job_id(shape, request.pipeline, world)
    output, dead = _outputs(pipeline, job, world)
    records, size = _volume(mirror, start, end)
    estimate = round(records / RECORDS_PER_SECOND, 1)
    bare = Plan(
        kind=shape.kind,
        request=request,
        job_id=job,
        live_job_id=live.job_id,
        epoch=epoch,
        topic=topic.name,
        topic_id=topic.id,
        start=start,
        end=end,
        mirror_version=mirror.version if mirror else -1,
        records=records,
        bytes=size,
        chunks=math.ceil(records / pipeline.chunk_records),
        estimate_seconds=estimate,
        differences=tuple(found),
        config=pipeline.frozen(),
        bundle=code.bundle,
        output_schema=code.output_schema,
        output_topic=output,
        dead_letter_topic=dead,
        accepted_gaps=accepted,
        state=code.state,
        asked=asked,
        touches=touches,
        trusted_from=trusted,
    )
    remarks = time_range.remarks(dated, asked, end, sight)
    return sealed(replace(bare, warnings=(*_warnings(bare, live, topic, mirror, world), *remarks)))


def still_holds(plan: Plan, pipeline: Pipeline, code: Code, world: World) -> list[str]:
    """Check that a plan can be applied as it is, and return what it would warn of now and did not when it was made.

    Raises:
        WorldMovedError: Something that the plan rests on is no longer so.
        RefusedError: Another rewind is active, the source topic is gone, a name that it will take is taken, or a reader
            cannot be moved.
    """
    live, epoch = _live(plan.request, world)
    _refuse_second(plan.request, world)
    pipeline = _as_made(plan.shape, pipeline, live)
    topic = _topic(pipeline, live, world)
    now = {
        "live_job_id": live.job_id,
        "epoch": epoch,
        "topic_id": topic.id,
        "partitions": sorted(topic.latest),
        "bundle": code.bundle,
        "job_id": _job_id(plan.shape, plan.request.pipeline, world),
    }
    moved = [f"{k} was {v}, is {now[k]}" for k, v in plan.premises().items() if now[k] != v]
    if pipeline.frozen() != plan.config:
        moved.append("the configuration has changed")
    if moved:
        raise WorldMovedError(
            "apply_plan", f"the plan is stale, since what it assumes has changed: {'; '.join(moved)}", "Make a new plan"
        )
    _outputs(pipeline, plan.job_id, world)
    return [line for line in _warnings(plan, live, topic, _mirror(topic, world), world) if line not in plan.warnings]


def _as_made(shape: Shape, pipeline: Pipeline, live: Generation) -> Pipeline:
    """Return a pipeline as its rows are made: those of a repair by the rules that the others in live's output keep."""
    return replace(pipeline, exact=live.declared.exact) if shape.repairs else pipeline


def _warnings(plan: Plan, live: Generation, topic: Topic, mirror: MirrorState | None, world: World) -> tuple[str, ...]:
    facts = preflight.Facts(
        live=live,
        topic=topic,
        mirror=mirror,
        start=plan.start,
        job_id=plan.job_id,
        records=plan.records,
        estimate_seconds=plan.estimate_seconds,
        readers=plan.request.consumer_groups,
        free_bytes=world.free_bytes,
        mirror_keeps_seconds=world.mirror_keeps_seconds,
        undeclared=world.undeclared,
        repair=plan.shape.repairs,
    )
    return tuple(preflight.told(facts, world.broker))


def _begin(
    shape: Shape, pipeline: Pipeline, code: Code, asked: Vector, sight: Sight, live: Generation, world: World
) -> tuple[Vector, int | None]:
    """Return the first offsets to be read, and from when on the results of a pipeline with state are whole."""
    if not pipeline.stateful:
        return asked, None
    if not shape.reads_history:
        whole = warm_up.released(pipeline, code.delay, live, world.lifecycle)
        return asked, warm_up.after_repeats(whole, code.state, code.delay)
    earliest = sight.mirror.start() if sight.mirror is not None else dict(sight.topic.earliest)
    made = warm_up.begin(asked, earliest, pipeline, code.delay, live, world.lifecycle)
    return made.start, warm_up.after_repeats(made.trusted_from, code.state, code.delay)


def _live(request: Request, world: World) -> tuple[Generation, int]:
    found = world.lifecycle.live(request.pipeline)
    if found is None:
        cure = f"Make its first generation with the DAG deploy_{request.pipeline}"
        raise RefusedError("pipeline", f"{request.pipeline} has no live generation", cure)
    return found


def _refuse_second(request: Request, world: World) -> None:
    active = world.lifecycle.active_rewind(request.pipeline)
    if active is not None:
        cure = "Wait for it, finish it, or abort it"
        raise RefusedError("pipeline", f"rewind {active} of {request.pipeline} is active", cure)


def _topic(pipeline: Pipeline, live: Generation, world: World) -> Topic:
    topic = world.broker.topic(pipeline.source_topic)
    if topic is None:
        raise RefusedError(
            "source.topic", f"{pipeline.source_topic!r} is not on the broker", "Create it, or fix the name"
        )
    if topic.id != live.topic_id:
        raise RefusedError(
            "source.topic", recreated(topic, live.topic_id, world.lifecycle.position(live.job_id)), RECREATED_CURE
        )
    return topic


RECREATED_CURE = "Deploy a new generation for the new topic; the mirror keeps the old topic's records apart"


def recreated(topic: Topic, expected_id: str, position: Mapping[int, int]) -> str:
    """Return the text that tells a recreated topic, with each partition's stored, earliest and latest offset."""
    rows = [
        f"partition {p}: stored {position[p]}, earliest {topic.earliest.get(p)}, latest {topic.latest.get(p)}"
        for p in sorted(position)
    ]
    return f"{topic.name!r} was recreated (id {expected_id}, now {topic.id}); {'; '.join(rows) or 'no position stored'}"


def _mirror(topic: Topic, world: World) -> MirrorState | None:
    state = world.mirror.state(topic.name)
    return state if state is not None and state.topic_id == topic.id else None


def _version(live: Generation, code: Code) -> Version:
    return Version(live.frozen["config"], live.kept_state, code.live_files)


def _refuse_same(request: Request, shape: Shape, found: list[Difference], live: Generation) -> None:
    if not found and not request.same_code and shape.takes_over:
        cure = "Change the pipeline first, or set same_code to rewind with the code of live"
        raise RefusedError("same_code", f"nothing differs from {live.job_id}", cure)


def _refuse_alone(request: Request, pipeline: Pipeline, live: Generation) -> None:
    if request.auto_approve and (pipeline.four_eyes or live.declared.four_eyes):
        problem = "approval.four_eyes asks for a second person"
        raise RefusedError("auto_approve", problem, "Leave it out, and let another person approve")


def _refuse_other_kind(pipeline: Pipeline, live: Generation) -> None:
    kept = live.declared.stateful
    if kept != pipeline.stateful:
        problem = f"{live.job_id} keeps {'state' if kept else 'no state'}: none of its rows could be compared"
        raise RefusedError("stateful", problem, "Declare another pipeline, and deploy that")


def _refuse_readers(request: Request, pipeline: Pipeline, live: Generation) -> None:
    if not request.consumer_groups:
        return
    for one in (pipeline, live.declared):
        consumer_groups.refuse_unmovable(one)


def _job_id(shape: Shape, pipeline: str, world: World) -> str:
    number = world.lifecycle.next_number(pipeline, shape.own_number)
    return (names.repair_id if shape.repairs else names.job_id)(pipeline, number)


def _outputs(pipeline: Pipeline, job: str, world: World) -> tuple[str, str]:
    output = names.output_topic(pipeline.output_topic, job)
    dead = names.dead_letter_topic(pipeline.output_topic, job)
    taken = [*world.broker.topics(), *world.tables]
    names.checked_new([job, output, dead], taken, "pipeline")
    there = [name for name in (output, dead) if name in taken]
    if there:
        raise RefusedError(
            "output.topic", f"{', '.join(there)} exists already", "Delete what is left there, or rename the output"
        )
    return output, dead


def _volume(mirror: MirrorState | None, start: Vector, end: Vector) -> tuple[int, int]:
    span = total(between(start, end))
    if mirror is None or not mirror.records:
        return span, 0
    holes = sum(
        len(hole.overlap(OffsetRange(start[p], end[p])))
        for p in end
        for hole in mirror.holes.get(p, ())
        if start[p] <= end[p]
    )
    records = span - holes
    return records, records * mirror.bytes // mirror.records
