"""The range of a plan: what was asked for, resolved in each partition, checked, and the gaps accepted in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import index

from rewind.core.errors import RefusedError
from rewind.core.model import MirrorReader, MirrorState, Topic, held_back
from rewind.core.offsets import OffsetRange, Ranges, Vector, between, merged, missing, told, total, within
from rewind.core.periods import Dated
from rewind.core.planning import requested_range
from rewind.core.planning.stages import Shape


@dataclass(frozen=True)
class Sight:
    """What a range is resolved against.

    Attributes:
        topic: The source topic.
        mirror: Its mirror, if there is one.
        instants: Where instants are looked up in it.
        position: Next offset that live will read, per partition.
        now: The instant of the plan.
    """

    topic: Topic
    mirror: MirrorState | None
    instants: MirrorReader
    position: Mapping[int, int]
    now: datetime

    def mirrored(self, field: str) -> MirrorState:
        """Return the mirror.

        Raises:
            RefusedError: There is none.
        """
        if self.mirror is None:
            name = self.topic.name
            raise RefusedError(field, f"{name!r} has no mirror", f"Start it with the DAG mirror_{name}")
        return self.mirror


def resolve(text: str, field: str, sight: Sight, dated: Dated) -> Vector:
    """Return the offsets that a text asks for, in each partition.

    Args:
        text: Where from or where to, as the form gives it.
        field: `from` or `to`.
        sight: What it is resolved against.
        dated: What the request asks for by time.

    Raises:
        RefusedError: It cannot be read, names other partitions, or needs a mirror that is not there.
    """
    topic, position = sight.topic, sight.position
    match requested_range.parse(text, topic.name, field, sight.now):
        case requested_range.Earliest():
            covered = sight.mirrored(field).start()
            return {p: covered.get(p, topic.earliest[p]) for p in topic.latest}
        case requested_range.FromLive():
            return {p: position.get(p, topic.earliest[p]) for p in topic.latest}
        case requested_range.ShiftBy(offsets=count):
            floor = sight.mirrored(field).start()
            moved = {p: position.get(p, topic.earliest[p]) + count for p in topic.latest}
            return {p: min(max(o, floor.get(p, 0)), topic.latest[p]) for p, o in moved.items()}
        case requested_range.At():
            return _first(sight, dated) if field == "from" else _end(sight, dated)
        case requested_range.Exactly(vector=vector):
            return _exactly(vector, field, topic, sight.mirror)


def _first(sight: Sight, dated: Dated) -> Vector:
    # Where the mirror holds no record of the period, those that it has not read yet may be of it.
    rest = {**sight.topic.earliest, **sight.mirrored("from").end()}
    return {p: dated.found[p].start if p in dated.found else rest[p] for p in sight.topic.latest}


def _end(sight: Sight, dated: Dated) -> Vector:
    mirror = sight.mirrored("to")
    empty = mirror.start() if dated.period.since is None else mirror.end()
    rest = {**sight.topic.earliest, **empty}
    return {p: dated.found[p].end if p in dated.found else rest[p] for p in sight.topic.latest}


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


def check(shape: Shape, start: Vector, end: Vector, sight: Sight) -> None:
    """Check a resolved range.

    Raises:
        RefusedError: It is inverted, beyond Kafka's end, empty for a repair, or begins before the mirror.
    """
    topic = sight.topic
    field = "to" if shape.bounded else "from"
    inverted = [f"partition {p}: from {start[p]} to {end[p]}" for p in sorted(end) if start[p] > end[p]]
    if inverted:
        raise RefusedError(
            field, f"the range is inverted or beyond the end ({'; '.join(inverted)})", "Choose an earlier start"
        )
    beyond = [f"partition {p}: {end[p]} after {topic.latest[p]}" for p in sorted(end) if end[p] > topic.latest[p]]
    if beyond:
        told_of = "; ".join(beyond + held_back({p: r for p, r in topic.held().items() if end.get(p, 0) > r.start}))
        raise RefusedError(field, f"the range ends after Kafka's end ({told_of})", "Choose an earlier end")
    if shape.bounded and total(between(start, end)) == 0:
        raise RefusedError("to", "the range is empty", "Choose a later end or an earlier start")
    if not shape.reads_history:
        return
    state = sight.mirrored("from")
    before = [f"partition {p}: {start[p]} before {o}" for p, o in state.start().items() if start.get(p, o) < o]
    if before:
        raise RefusedError(
            "from", f"the mirror begins later ({'; '.join(before)})", "Choose a later start, or 'earliest'"
        )


def gaps(text: str, shape: Shape, start: Vector, end: Vector, sight: Sight) -> dict[int, tuple[OffsetRange, ...]]:
    """Return the gaps of the mirror within a range, all of which `text` accepts.

    Raises:
        RefusedError: The text cannot be read, or the mirror lacks records that it does not name, or can no longer be
            believed to hold them.
    """
    accepted, mirror = _accepted(text, sight.topic.name), sight.mirror
    if not shape.reads_history or mirror is None:
        return {}
    reach = end if shape.bounded else {p: min(end[p], o) for p, o in mirror.end().items()}
    _refuse_void(mirror, between(start, reach))
    used: dict[int, tuple[OffsetRange, ...]] = {}
    refused: list[str] = []
    for p in sorted(reach):
        found = unexplained(mirror, p, OffsetRange(start[p], max(start[p], reach[p])))
        allowed = [gap for gap in found if not missing(gap, accepted.get(p, []))]
        refused += [told(p, gap) for gap in found if gap not in allowed]
        if allowed:
            used[p] = tuple(allowed)
    if refused:
        cure = "Name them in accept_gaps to go on without these records, or restore the mirror"
        raise RefusedError("accept_gaps", f"the mirror lacks {'; '.join(refused)}", cure)
    return used


def _refuse_void(mirror: MirrorState, wanted: Ranges) -> None:
    parts = [told(p, part) for p in sorted(wanted) for part in within(mirror.void.get(p, ()), [wanted[p]])]
    if parts:
        problem = f"the mirror no longer surely holds {'; '.join(parts)}, since its table was changed: {mirror.changed}"
        raise RefusedError("from", problem, "RESTORE it to the version before, or choose a range without them")


def unexplained(mirror: MirrorState, partition: int, wanted: OffsetRange) -> list[OffsetRange]:
    """Return the offsets of `wanted` that the mirror lacks and no legal hole explains, in order."""
    uncovered = missing(wanted, mirror.covered.get(partition, []))
    empty = [hole.overlap(wanted) for hole in mirror.holes.get(partition, [])]
    legal = mirror.legal_holes.get(partition, [])
    return merged([*uncovered, *(part for hole in empty for part in missing(hole, legal))])


def _accepted(text: str, topic: str) -> dict[int, list[OffsetRange]]:
    if not text.strip():
        return {}
    example = f'Write [start, end) ranges, as {{"{topic}":{{"0":[[3,4],[6,8]]}}}}'
    try:
        parts = json.loads(text)[topic]
        return {int(p): [OffsetRange(index(a), index(b)) for a, b in ranges] for p, ranges in parts.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RefusedError("accept_gaps", f"{text!r} names no gaps of {topic!r}", example) from None
