"""Cut a wave of history into chunks, each bounded and contiguous in every partition.

A pipeline without state is fed all partitions alike (`cut`). One with state has to be fed in the order in which the
records arrived (`by_arrival`): a partition that is fed ahead of the others pulls the watermark ahead, and makes late
what never was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rewind.core.offsets import OffsetRange, Ranges, total


@dataclass(frozen=True)
class Arrivals:
    """The records of one partition that arrived within one span of time.

    Attributes:
        span: Number of the span; a later one has a higher number.
        partition: The partition.
        first: Lowest offset among them.
    """

    span: int
    partition: int
    first: int


def by_arrival(ranges: Mapping[int, OffsetRange], arrivals: Sequence[Arrivals], size: int) -> list[Ranges]:
    """Return the ranges in chunks of at most about `size` offsets, in order of arrival, none empty.

    A chunk ends in each partition before the first record that arrived after a common instant. That instant is one of
    the running maximum of the timestamps: a record that carries an older one than a record before it counts as that
    arrived. A span of time that holds more than `size` offsets is cut by shares (`cut`).

    Args:
        ranges: The offsets.
        arrivals: What arrived when, in any order; a partition may be absent from a span.
        size: Most offsets in a chunk.
    """
    places = [*_boundaries(ranges, arrivals), {p: r.end for p, r in ranges.items()}]
    at = {p: r.start for p, r in ranges.items()}
    made: list[Ranges] = []
    for place, following in pairwise(places):
        if total(_between(at, following)) > size:
            made += cut(_between(at, place), size)
            at = place
    return made + cut(_between(at, places[-1]), size)


def _boundaries(ranges: Mapping[int, OffsetRange], arrivals: Sequence[Arrivals]) -> list[dict[int, int]]:
    """Return per span, in order, where each partition stands before the first record of that span or a later one."""
    places: list[dict[int, int]] = []
    at = {p: r.end for p, r in ranges.items()}
    by_span: dict[int, list[Arrivals]] = {}
    for one in arrivals:
        by_span.setdefault(one.span, []).append(one)
    for span in sorted(by_span, reverse=True):
        at = {**at, **{one.partition: min(one.first, at[one.partition]) for one in by_span[span]}}
        places.append(at)
    return places[::-1]


def _between(start: Mapping[int, int], end: Mapping[int, int]) -> Ranges:
    return {p: OffsetRange(start[p], end[p]) for p in start}


def cut(ranges: Mapping[int, OffsetRange], size: int) -> list[Ranges]:
    """Return the ranges in chunks of about `size` offsets, in order, none empty.

    Each chunk takes the same share of every partition, so that partitions advance together and the
    chunk's tasks are alike in size.
    """
    offsets = total(ranges)
    count = -(-offsets // size) if offsets else 0
    return [chunk for n in range(count) if total(chunk := _share(ranges, n, count))]


def _share(ranges: Mapping[int, OffsetRange], number: int, count: int) -> Ranges:
    return {
        p: OffsetRange(r.start + len(r) * number // count, r.start + len(r) * (number + 1) // count)
        for p, r in ranges.items()
    }
