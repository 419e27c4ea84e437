"""Make a plan from a request and a world that is only read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import index

from rewind.core import asked, names, preflight
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.offsets import OffsetRange, Vector, between, merged, missing, total
from rewind.core.pipeline import Pipeline
from rewind.core.plan import RELEASE, REPAIR, REWIND, Difference, Plan, Request, sealed
from rewind.core.world import BrokerReader, Generation, LifecycleReader, MirrorReader, MirrorState, Topic

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
    """

    bundle: str
    files: Mapping[str, str]
    live_files: Mapping[str, str]
    output_schema: str


@dataclass(frozen=True)
class World:
    """What a planner reads: its ports, and the bytes that are free on the disk of checkpoints and mirrors."""

    broker: BrokerReader
    mirror: MirrorReader
    lifecycle: LifecycleReader
    free_bytes: int


def make_plan(request: Request, pipeline: Pipeline, code: Code, world: World, now: datetime) -> Plan:
    """Return the plan of a request.

    Raises:
        RefusedError: The request cannot be carried out; nothing has been changed.
    """
    _refuse_stateful(pipeline)
    live, epoch = _live(request, world)
    _refuse_second(request, world)
    topic = _topic(pipeline, live, world)
    kind = REPAIR if request.end else RELEASE if request.start.strip() == "live" else REWIND
    mirror = _mirror(topic, world)
    start = _resolve(request.start, "from", topic, mirror, live, world, now)
    end = _resolve(request.end, "to", topic, mirror, live, world, now) if kind == REPAIR else dict(topic.latest)
    _check_range(kind, start, end, topic, mirror)
    accepted = _gaps(request, topic, mirror, start, end, kind)
    differences = _differences(live, pipeline, code)
    _refuse_same(request, kind, differences, live)
    job = _job_id(kind, request.pipeline, world)
    output, dead = _outputs(pipeline, job, world)
    records, size = _volume(mirror, start, end)
    estimate = round(records / RECORDS_PER_SECOND, 1)
    readers, free = request.consumer_groups, world.free_bytes
    facts = preflight.Facts(live, topic, mirror, start, job, records, estimate, readers, free)
    return sealed(
        Plan(
            kind=kind,
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
            differences=tuple(differences),
            config=pipeline.frozen(),
            bundle=code.bundle,
            output_schema=code.output_schema,
            output_topic=output,
            dead_letter_topic=dead,
            accepted_gaps=accepted,
            warnings=tuple(preflight.told(facts, world.broker)),
        )
    )


def still_holds(plan: Plan, pipeline: Pipeline, code: Code, world: World) -> None:
    """Check that a plan can be applied as it is.

    Raises:
        WorldMovedError: Something that the plan rests on is no longer so.
        RefusedError: Another rewind is active, or the source topic is gone.
    """
    live, epoch = _live(plan.request, world)
    _refuse_second(plan.request, world)
    topic = _topic(pipeline, live, world)
    now = {
        "live_job_id": live.job_id,
        "epoch": epoch,
        "topic_id": topic.id,
        "partitions": sorted(topic.latest),
        "bundle": code.bundle,
        "job_id": _job_id(plan.kind, plan.request.pipeline, world),
    }
    moved = [f"{k} was {v}, is {now[k]}" for k, v in plan.premises().items() if now[k] != v]
    if pipeline.frozen() != plan.config:
        moved.append("the configuration has changed")
    preflight.refuse_group_in_use(plan.job_id, world.broker)
    if moved:
        raise WorldMovedError("apply_plan", f"the world has moved: {'; '.join(moved)}", "Make a new plan")


def _refuse_stateful(pipeline: Pipeline) -> None:
    if pipeline.stateful:
        cure = "Declare it stateless, or wait for a release that can"
        raise RefusedError("stateful", f"{pipeline.name} keeps state, which cannot be rewound yet", cure)


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
            "source.topic", f"{pipeline.source_topic!r} is not on the broker", "Create it, or mend the name"
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


def _need_mirror(mirror: MirrorState | None, field: str, topic: Topic) -> MirrorState:
    if mirror is None:
        raise RefusedError(field, f"{topic.name!r} has no mirror", f"Start it with the DAG mirror_{topic.name}")
    return mirror


def _resolve(
    text: str,
    field: str,
    topic: Topic,
    mirror: MirrorState | None,
    live: Generation,
    world: World,
    now: datetime,
) -> Vector:
    wanted = asked.parse(text, topic.name, field, now)
    position = world.lifecycle.position(live.job_id)
    match wanted:
        case asked.Earliest():
            covered = _need_mirror(mirror, field, topic).start()
            return {p: covered.get(p, topic.earliest[p]) for p in topic.latest}
        case asked.FromLive():
            return {p: position.get(p, topic.earliest[p]) for p in topic.latest}
        case asked.ShiftBy(offsets=count):
            floor = _need_mirror(mirror, field, topic).start()
            moved = {p: position.get(p, topic.earliest[p]) + count for p in topic.latest}
            return {p: min(max(o, floor.get(p, 0)), topic.latest[p]) for p, o in moved.items()}
        case asked.At(instant=instant):
            return _at(instant, field, topic, _need_mirror(mirror, field, topic), world, now)
        case asked.Exactly(vector=vector):
            return _exactly(vector, field, topic, mirror)


def _at(instant: datetime, field: str, topic: Topic, mirror: MirrorState, world: World, now: datetime) -> Vector:
    if instant > now:
        raise RefusedError(field, f"{instant.isoformat()} lies in the future", "Ask for an instant that has passed")
    found = world.mirror.offsets_at(topic.name, instant)
    end = mirror.end()
    return {p: found.get(p, end.get(p, topic.earliest[p])) for p in topic.latest}


def _exactly(vector: Vector, field: str, topic: Topic, mirror: MirrorState | None) -> Vector:
    unknown = sorted(vector.keys() - topic.latest.keys())
    lacking = sorted(topic.latest.keys() - vector.keys())
    if unknown or lacking:
        problem = "; ".join(
            text
            for text in (
                f"partitions {lacking} are missing" if lacking else "",
                f"partitions {unknown} are unknown" if unknown else "",
            )
            if text
        )
        raise RefusedError(field, problem, f"Name exactly the partitions {sorted(topic.latest)} of {topic.name!r}")
    first = mirror.start() if mirror else {}
    named = {-2: lambda p: first.get(p, topic.earliest[p]), -1: lambda p: topic.latest[p]}
    return {p: named[o](p) if o in named else o for p, o in vector.items()}


def _check_range(kind: str, start: Vector, end: Vector, topic: Topic, mirror: MirrorState | None) -> None:
    field = "to" if kind == REPAIR else "from"
    inverted = [f"partition {p}: from {start[p]} to {end[p]}" for p in sorted(end) if start[p] > end[p]]
    if inverted:
        raise RefusedError(
            field, f"the range is inverted or beyond the end ({'; '.join(inverted)})", "Choose an earlier start"
        )
    beyond = [f"partition {p}: {end[p]} after {topic.latest[p]}" for p in sorted(end) if end[p] > topic.latest[p]]
    if beyond:
        raise RefusedError(field, f"the range ends after Kafka's end ({'; '.join(beyond)})", "Choose an earlier end")
    if kind == REPAIR and total(between(start, end)) == 0:
        raise RefusedError("to", "the range is empty", "Choose a later end or an earlier start")
    if kind == RELEASE:
        return
    state = _need_mirror(mirror, "from", topic)
    before = [f"partition {p}: {start[p]} before {o}" for p, o in state.start().items() if start.get(p, o) < o]
    if before:
        raise RefusedError(
            "from", f"the mirror begins later ({'; '.join(before)})", "Choose a later start, or 'earliest'"
        )


def _gaps(
    request: Request, topic: Topic, mirror: MirrorState | None, start: Vector, end: Vector, kind: str
) -> dict[int, tuple[OffsetRange, ...]]:
    accepted = _accepted(request.accept_gaps, topic.name)
    if kind == RELEASE or mirror is None:
        return {}
    reach = end if kind == REPAIR else {p: min(end[p], o) for p, o in mirror.end().items()}
    used: dict[int, tuple[OffsetRange, ...]] = {}
    refused: list[str] = []
    for p in sorted(reach):
        found = unexplained(mirror, p, OffsetRange(start[p], max(start[p], reach[p])))
        allowed = [gap for gap in found if not missing(gap, accepted.get(p, []))]
        refused += [_gap_text(p, gap) for gap in found if gap not in allowed]
        if allowed:
            used[p] = tuple(allowed)
    if refused:
        cure = "Name them in accept_gaps to go on without these records, or restore the mirror"
        raise RefusedError("accept_gaps", f"the mirror lacks {'; '.join(refused)}", cure)
    return used


def unexplained(mirror: MirrorState, partition: int, wanted: OffsetRange) -> list[OffsetRange]:
    """Return the offsets of `wanted` that the mirror lacks and no legal hole explains, in order."""
    uncovered = missing(wanted, mirror.covered.get(partition, []))
    empty = [hole.overlap(wanted) for hole in mirror.holes.get(partition, [])]
    legal = mirror.legal_holes.get(partition, [])
    return merged([*uncovered, *(part for hole in empty for part in missing(hole, legal))])


def _gap_text(partition: int, gap: OffsetRange) -> str:
    last = f"-{gap.end - 1}" if len(gap) > 1 else ""
    return f"partition {partition} offset {gap.start}{last}"


def _accepted(text: str, topic: str) -> dict[int, list[OffsetRange]]:
    if not text.strip():
        return {}
    example = f'Write [start, end) ranges, as {{"{topic}":{{"0":[[3,4],[6,8]]}}}}'
    try:
        parts = json.loads(text)[topic]
        return {int(p): [OffsetRange(index(a), index(b)) for a, b in ranges] for p, ranges in parts.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RefusedError("accept_gaps", f"{text!r} names no gaps of {topic!r}", example) from None


def _differences(live: Generation, pipeline: Pipeline, code: Code) -> list[Difference]:
    old, new = live.frozen["config"], pipeline.frozen()
    settings = [
        Difference(key, str(old.get(key, "")), str(value)) for key, value in new.items() if old.get(key) != value
    ]
    paths: Sequence[str] = sorted(code.files.keys() | code.live_files.keys())
    files = [
        Difference(path, code.live_files.get(path, "")[:12], code.files.get(path, "")[:12])
        for path in paths
        if code.live_files.get(path) != code.files.get(path)
    ]
    return settings + files


def _refuse_same(request: Request, kind: str, differences: list[Difference], live: Generation) -> None:
    if not differences and not request.same_code and kind != REPAIR:
        cure = "Change the pipeline first, or set same_code to rewind with the code of live"
        raise RefusedError("same_code", f"nothing differs from {live.job_id}", cure)


def _job_id(kind: str, pipeline: str, world: World) -> str:
    if kind == REPAIR:
        return names.repair_id(pipeline, world.lifecycle.next_number(pipeline, "r"))
    return names.job_id(pipeline, world.lifecycle.next_number(pipeline, "g"))


def _outputs(pipeline: Pipeline, job: str, world: World) -> tuple[str, str]:
    output = names.output_topic(pipeline.output_topic, job)
    dead = names.dead_letter_topic(pipeline.output_topic, job)
    taken = world.broker.topics()
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
