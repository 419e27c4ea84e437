"""Carry consumer groups from one output of a pipeline to another, so that each resumes where it was."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from rewind.adapters import outputs
from rewind.adapters.mirror_reader import Mirror
from rewind.adapters.session import session
from rewind.core.coordinates import Coordinate
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Generation, Topic
from rewind.core.offsets import Ranges, Vector, behind, between, higher, reached, starts
from rewind.core.periods import Period, milliseconds
from rewind.core.planning.consumer_groups import (
    KEEP,
    LISTED,
    Held,
    Move,
    Sides,
    check_history,
    check_reach,
    refuse_unmovable,
)
from rewind.core.planning.requested_range import At, Earliest, Exactly, parse
from rewind.core.settings import Settings
from rewind.declared import forms
from rewind.registry import progress
from rewind.registry.database import reading, writing
from rewind.runtime import consumer_groups
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import recording
from rewind.transforms.records import positions

PATIENCE_SECONDS = 50.0
"""How long the new job may take to pass all that the groups have read."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """Which groups are to be moved, and what becomes of records that only the new output has below their positions.

    Attributes:
        groups: The consumer groups.
        only_new: `consumers.KEEP` or `REPLAY`.
        replay_from: With `REPLAY`: earliest, an instant or offsets JSON, of the source topic.
    """

    groups: Sequence[str]
    only_new: str = KEEP
    replay_from: str = "earliest"


def asked_of(values: Mapping[str, Any], groups: Sequence[str]) -> Asked:
    """Return what the values of a form (`requests.MOVES`) ask for some groups."""
    return Asked(groups, values["only_new"], values["replay_from"])


def run(settings: Settings, move_id: str, pipeline: str, asked: Mapping[str, Any]) -> None:
    """Move consumer groups to the output that is live now; again is harmless.

    Args:
        settings: The installation.
        move_id: The same through retries.
        pipeline: The pipeline.
        asked: The form (`requests.CONSUMERS`). A dry run only tells what would be done, for any two jobs.

    Raises:
        RefusedError: A bad value, or a group that cannot be moved.
        RetryError: The new job does not pass in time what the groups have read.
    """
    values = forms.checked(asked, forms.CONSUMERS, f"consumers_{pipeline}")
    wanted = asked_of(values, values["consumer_groups"])
    if not wanted.groups:
        raise RefusedError("consumer_groups", "names none", "Give the groups that read the pipeline's output")
    with reading(settings.registry_url) as connection:
        sides = consumer_groups.sides(connection, pipeline, values["from_job"] or "", values["to_job"] or "")
    if values["dry_run"]:
        computed(settings, sides, wanted)
        log.info("dry run: nothing was changed")
        return
    recording.recorded(settings, move_id, "consumers", lambda _: _moved(settings, move_id, sides, wanted))


def _moved(settings: Settings, move_id: str, sides: Sides, asked: Asked) -> dict[str, Any]:
    planned(settings, move_id, sides, asked)
    return {"consumers": consumer_groups.carry_out(settings, Broker(settings), move_id)}


def planned(settings: Settings, move_id: str, sides: Sides, asked: Asked) -> None:
    """Compute the moves and record them, before a switch.

    Raises:
        RefusedError: As `check`, or a group would miss records.
        RetryError: As `computed`.
    """
    moves = computed(settings, sides, asked)
    with side_effect("consumers.plan"), writing(settings.registry_url) as connection:
        consumer_groups.plan(connection, move_id, sides.new.pipeline, moves)


def check(settings: Settings, sides: Sides, groups: Sequence[str]) -> list[Held]:
    """Return what each group has read.

    Raises:
        RefusedError: A group that cannot be moved: a job's own, one with members, one that never read the old output.
    """
    if sides.old.topic_id != sides.new.topic_id:
        problem = f"{sides.old.job_id} and {sides.new.job_id} were made from different source topics"
        raise RefusedError("consumer_groups", problem, "Reset the groups by hand: no record of one is in the other")
    for side in (sides.old, sides.new):
        refuse_unmovable(side.declared)
    broker = Broker(settings)
    return [consumer_groups.held(settings, broker, sides, group) for group in dict.fromkeys(groups)]


def computed(settings: Settings, sides: Sides, asked: Asked) -> tuple[Move, ...]:
    """Return where each group goes on in the new output, and tell it; nothing is changed.

    Raises:
        RefusedError: As `check`, or a group would miss records.
        RetryError: The new job does not pass in time what the groups have read.
    """
    stand = check(settings, sides, asked.groups)
    config = sides.new.frozen["config"]
    spark = session(f"consumers of {sides.new.pipeline}", config["session_time_zone"])
    back = _back(spark, settings, sides.old, asked)
    # The position first: what the old job had read by then is in its output as it is described next.
    at = _position(settings, sides.old)
    whole = outputs.first_whole(spark, settings, sides.old)
    topic, rows = outputs.read_rows(spark, settings, sides.old)
    for held in stand:
        check_reach(held, topic.earliest, topic.name, replayed=bool(back))
    with _kept(positions.placed(rows)) as old:
        marks = {held.group: marks_of(old, held, at) for held in stand}
        for group, (unread, _) in marks.items():
            check_history(group, unread, sides.new.start, sides.new.job_id)
        _await(settings, sides.new, higher(at, *(reach for _, reach in marks.values())))
        topic, rows = outputs.read_rows(spark, settings, sides.new)
        with _kept(positions.placed(rows)) as new:
            seen = Seen(sides, old, new, topic, whole)
            moves = tuple(move_of(seen, held, _floor(marks[held.group][0], back)) for held in stand)
    for line in (line for move in moves for line in move.told()):
        log.info("%s", line)
    return moves


@dataclass(frozen=True)
class Seen:
    """Both outputs as they were read.

    Attributes:
        sides: Whose they are.
        old: Rows of the old one (`positions.placed`).
        new: Rows of the new one.
        topic: The new one's topic as it was then.
        whole: Source offsets from which the old one is whole.
    """

    sides: Sides
    old: DataFrame
    new: DataFrame
    topic: Topic
    whole: Vector


def marks_of(old: DataFrame, held: Held, at: Vector) -> tuple[Vector, Vector]:
    """Return the first source offsets that a group has not read, and those after the last that it has.

    Args:
        old: The old output (`positions.placed`).
        held: What the group has read of it.
        at: The old job's source position: beyond it nothing has been read.
    """
    # One row a source partition.
    found = positions.marks(positions.settled(old, held.read)).collect()
    unread = {row["p"]: row["low"] for row in found if row["low"] is not None}
    low = {p: min(unread.get(p, offset), offset) for p, offset in at.items()}
    return low, {row["p"]: row["reach"] for row in found if row["reach"] is not None}


def move_of(seen: Seen, held: Held, low: Vector) -> Move:
    """Return where a group goes on: in each partition of the new output at the first row that it needs.

    Args:
        seen: Both outputs.
        held: What the group has read.
        low: First source offset of each partition that it needs, when it has not read it.
    """
    topic = seen.topic
    there = positions.met(seen.new, _read_there(held, topic)) if held.before else None
    read = positions.known(positions.settled(seen.old, held.read), there)
    with _kept(positions.pairs(read, seen.new)) as pairs:
        # One row an output partition.
        needed = {row["out_partition"]: row["first"] for row in positions.first_needed(pairs, low).collect()}
        goes_on = {p: needed.get(p, end) for p, end in topic.latest.items()}
        repeats, dropped = positions.totals(pairs, goes_on).collect()[0]
        left_out, listed = _listed(positions.left_out(pairs, goes_on, seen.whole))
    return Move(
        group=held.group,
        from_job=seen.sides.old.job_id,
        to_job=seen.sides.new.job_id,
        to_topic=topic.name,
        before=held.before,
        positions=goes_on,
        repeats=repeats,
        left_out=left_out,
        listed=listed,
        dropped=dropped,
    )


def _listed(left_out: DataFrame) -> tuple[int, tuple[str, ...]]:
    """Return how many coordinates there are, and the first of them as texts without the topic's id."""
    first = left_out.orderBy("p", "o", "n").limit(LISTED).collect()
    count = left_out.count() if len(first) == LISTED else len(first)
    return count, tuple(str(Coordinate("", *row)).lstrip(":") for row in first)


def _floor(low: Vector, back: Vector) -> Vector:
    """Return from where on a group needs what it has not read: further back than its own mark when it replays."""
    return {p: min(offset, back.get(p, offset)) for p, offset in low.items()}


def _back(spark: SparkSession, settings: Settings, old: Generation, asked: Asked) -> Vector:
    """Return the source offsets from which records that only the new output has are replayed; empty to keep."""
    if asked.only_new == KEEP:
        return {}
    topic = old.source_topic
    match parse(asked.replay_from, topic, "replay_from", datetime.now(UTC)):
        case Earliest():
            return dict.fromkeys(_position(settings, old), 0)
        case Exactly(vector=vector):
            return vector
        case At(instant=instant):
            since = Period(since=milliseconds(instant))
            return starts(Mirror(spark, settings, transactional=False).within(topic, since))
    raise RefusedError(
        "replay_from", f"{asked.replay_from!r} is no point", "Write earliest, an instant or offsets JSON"
    )


def _read_there(held: Held, topic: Topic) -> Ranges:
    begun = {p: held.started.get(p, topic.earliest[p]) for p in topic.earliest}
    return between(begun, {p: held.before.get(p, begun[p]) for p in begun})


def _position(settings: Settings, job: Generation) -> Vector:
    with reading(settings.registry_url) as connection:
        return progress.position(connection, job.job_id, job.handoff)


def _await(settings: Settings, job: Generation, target: Vector) -> None:
    """Wait until a job has passed what groups have read: what it wrote later would be repeats that nobody counted."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached(at := _position(settings, job), target):
        if time.monotonic() > deadline:
            left = behind(at, target)
            raise RetryError(f"{job.job_id} is {left:,} offsets short of what consumers have read, {target}")
        time.sleep(0.5)


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Keep rows on disk meanwhile: they are read several times, and may be more than memory holds."""
    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()
