"""Chunks in order of arrival: contiguous a partition, bounded, nothing left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rewind.core.offsets import OffsetRange, total
from rewind.core.planning.chunks import Arrivals, by_arrival


def arrivals(times):
    """Return what a scan finds of records that carry these times, offset by offset, per partition."""
    found = {}
    for partition, stamps in times.items():
        for offset, time in enumerate(stamps):
            found.setdefault((time, partition), offset)
    return [Arrivals(time, partition, first) for (time, partition), first in found.items()]


def ranges(times):
    return {p: OffsetRange(0, len(stamps)) for p, stamps in times.items()}


def cut(times, size):
    return [
        {p: (r.start, r.end) for p, r in chunk.items()} for chunk in by_arrival(ranges(times), arrivals(times), size)
    ]


def test_a_chunk_ends_at_one_instant_in_all_partitions():
    assert cut({0: [1, 2, 3, 4], 1: [1, 1, 1, 4]}, 4) == [
        {0: (0, 1), 1: (0, 3)},
        {0: (1, 4), 1: (3, 4)},
    ]


def test_a_record_that_carries_an_older_time_than_one_before_it_arrived_after_that():
    assert cut({0: [5, 1, 6], 1: [1, 2, 3]}, 4) == [{0: (0, 0), 1: (0, 3)}, {0: (0, 3), 1: (3, 3)}]


def test_an_instant_with_more_than_a_chunk_is_cut_by_shares():
    assert cut({0: [1] * 4, 1: [1] * 4}, 4) == [{0: (0, 2), 1: (0, 2)}, {0: (2, 4), 1: (2, 4)}]


def test_nothing_gives_no_chunk():
    assert cut({0: [], 1: []}, 4) == []


@given(st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=30), min_size=1), st.integers(1, 12))
def test_chunks_are_bounded_contiguous_and_in_order(times, size):
    at = dict.fromkeys(times, 0)
    for chunk in by_arrival(ranges(times), arrivals(times), size):
        assert 0 < total(chunk) <= size + len(times)
        assert {p: r.start for p, r in chunk.items()} == at
        at = {p: r.end for p, r in chunk.items()}
    assert at == {p: len(stamps) for p, stamps in times.items()}


@given(st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=30), min_size=1))
def test_what_a_later_chunk_holds_arrived_no_earlier(times):
    """By the running maximum, unless one instant alone is larger than a chunk."""
    running = {p: [max(stamps[: n + 1]) for n in range(len(stamps))] for p, stamps in times.items()}
    largest = max((sum(s.count(t) for s in running.values()) for t in range(10)), default=1)
    newest = -1
    for chunk in by_arrival(ranges(times), arrivals(times), max(largest, 1)):
        seen = [running[p][o] for p, r in chunk.items() for o in range(r.start, r.end)]
        assert min(seen) > newest
        newest = max(seen)
