"""Offset ranges and vectors: the one home of the interval convention.

A range is half-open, `[start, end)`, and an end is the *next* offset to read. A vector maps each
partition of one topic to its next offset. Their text form is Spark's: `{"topic":{"0":23,"1":0}}`
(https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html).
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rewind.core.errors import RefusedError

Vector = dict[int, int]

_WHOLE = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets of one partition, half-open.

    Attributes:
        start: First offset of the range.
        end: Offset after the last one; equal to `start` when the range is empty.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"[{self.start}, {self.end}) is no offset range")

    def __len__(self) -> int:
        return self.end - self.start

    def overlap(self, other: OffsetRange) -> OffsetRange:
        """Return the common part, empty (at the higher start) where there is none."""
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.end, other.end)))


Ranges = dict[int, OffsetRange]


def between(start: Mapping[int, int], end: Mapping[int, int]) -> Ranges:
    """Return per partition of `end` the range from `start` (0 where it names none) to `end`.

    A partition whose start lies beyond its end gives an empty range at the start.
    """
    return {p: OffsetRange(start.get(p, 0), max(end[p], start.get(p, 0))) for p in sorted(end)}


def starts(ranges: Mapping[int, OffsetRange]) -> Vector:
    """Return the first offset of each range."""
    return {p: r.start for p, r in ranges.items()}


def ends(ranges: Mapping[int, OffsetRange]) -> Vector:
    """Return the next offset after each range."""
    return {p: r.end for p, r in ranges.items()}


def total(ranges: Mapping[int, OffsetRange]) -> int:
    """Return how many offsets the ranges span; records may be fewer where there are holes."""
    return sum(len(r) for r in ranges.values())


def lower(left: Mapping[int, int], right: Mapping[int, int]) -> Vector:
    """Return the lower of both positions for every partition known to both."""
    return {p: min(left[p], right[p]) for p in sorted(left.keys() & right.keys())}


def higher(*vectors: Mapping[int, int]) -> Vector:
    """Return the highest offset of each partition that any of the vectors names."""
    return {p: max(v[p] for v in vectors if p in v) for p in sorted({p for v in vectors for p in v})}


def reached(position: Mapping[int, int], target: Mapping[int, int]) -> bool:
    """Return whether `position` is at or past `target` in each of the target's partitions."""
    return all(position.get(p, 0) >= offset for p, offset in target.items())


def behind(position: Mapping[int, int], target: Mapping[int, int]) -> int:
    """Return how many offsets `position` lacks to reach `target`, summed over partitions."""
    return sum(max(0, offset - position.get(p, 0)) for p, offset in target.items())


def missing(wanted: OffsetRange, done: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of `wanted` that none of `done` covers, in offset order."""
    gaps, position = [], wanted.start
    for part in sorted(p for p in done if len(p)):
        if part.start > position and position < wanted.end:
            gaps.append(OffsetRange(position, min(part.start, wanted.end)))
        position = max(position, part.end)
    if position < wanted.end:
        gaps.append(OffsetRange(position, wanted.end))
    return gaps


def within(parts: Iterable[OffsetRange], others: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of `parts` that one of `others` holds too, as few, disjoint ranges in order."""
    return merged(part.overlap(other) for part in parts for other in others)


def without(parts: Iterable[OffsetRange], others: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of `parts` that none of `others` holds."""
    return [left for part in parts for left in missing(part, others)]


def near(parts: Sequence[OffsetRange], wanted: OffsetRange) -> Sequence[OffsetRange]:
    """Return those of many disjoint ranges, in order, that have offsets of `wanted`."""
    first = bisect.bisect_right(parts, wanted.start, key=lambda part: part.end)
    return parts[first : bisect.bisect_left(parts, wanted.end, key=lambda part: part.start)]


def told(partition: int, part: OffsetRange) -> str:
    """Return a range as text, both ends inclusive: `partition 0 offset 6-7`."""
    last = f"-{part.end - 1}" if len(part) > 1 else ""
    return f"partition {partition} offset {part.start}{last}"


def all_told(ranges: Mapping[int, OffsetRange]) -> str:
    """Return the ranges that are not empty as text."""
    return "; ".join(told(p, part) for p, part in sorted(ranges.items()) if len(part))


def merged(parts: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets as few, disjoint ranges in order."""
    result: list[OffsetRange] = []
    for part in sorted(p for p in parts if len(p)):
        if result and part.start <= result[-1].end:
            result[-1] = OffsetRange(result[-1].start, max(result[-1].end, part.end))
        else:
            result.append(part)
    return result


def to_spark_json(topic: str, vector: Mapping[int, int]) -> str:
    """Return `vector` as Spark writes it, partitions in order, without spaces."""
    return json.dumps({topic: {str(p): vector[p] for p in sorted(vector)}}, separators=(",", ":"))


def from_spark_json(text: str, topic: str, field: str) -> Vector:
    """Return the vector that `text` gives for `topic`.

    Args:
        text: Spark's offsets JSON with exactly one topic.
        topic: The topic it must be about.
        field: Name of the parameter, for the error.

    Raises:
        RefusedError: Not JSON, another topic, a partition or an offset that is not an integer.
    """
    example = to_spark_json(topic, {0: 23, 1: 0})
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError(field, f"{text!r} is not JSON", f"Write offsets as {example}") from None
    if not isinstance(body, dict) or list(body) != [topic] or not isinstance(body[topic], dict):
        raise RefusedError(field, f"must name the topic {topic!r} and no other", f"Write offsets as {example}")
    return {_whole(p, field, example): _whole(o, field, example) for p, o in body[topic].items()}


def topic_of(text: str) -> str:
    """Return the topic that offsets JSON is about, or a placeholder when it is about none."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    return next(iter(body)) if isinstance(body, dict) and len(body) == 1 else "<topic>"


def _whole(value: object, field: str, example: str) -> int:
    number = int(str(value)) if _WHOLE.fullmatch(str(value)) else None
    if number is None or number < -2:
        raise RefusedError(field, f"{value!r} is no partition or offset", f"Write integers, as in {example}")
    return number
