"""Ranges and vectors: one interval convention, `[start, end)`."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewind.core import offsets
from rewind.core.errors import RefusedError
from rewind.core.offsets import OffsetRange
from rewind.core.planning.chunks import cut

SPAN = 60


@st.composite
def ranges(draw, highest=SPAN):
    start = draw(st.integers(0, highest))
    return OffsetRange(start, draw(st.integers(start, highest)))


def numbers(*parts):
    return {offset for part in parts for offset in range(part.start, part.end)}


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (-2, -1)])
def test_a_range_is_never_negative_or_inverted(start, end):
    with pytest.raises(ValueError, match="is no offset range"):
        OffsetRange(start, end)


def test_a_range_counts_its_offsets_and_may_be_empty():
    assert len(OffsetRange(3, 8)) == 5
    assert len(OffsetRange(3, 3)) == 0


@given(ranges(), ranges())
def test_overlap_is_what_both_hold(left, right):
    assert numbers(left.overlap(right)) == numbers(left) & numbers(right)


def test_an_empty_overlap_lies_at_the_higher_start():
    assert OffsetRange(0, 3).overlap(OffsetRange(7, 9)) == OffsetRange(7, 7)
    assert OffsetRange(7, 9).overlap(OffsetRange(0, 3)) == OffsetRange(7, 7)


@given(ranges(), st.lists(ranges(), max_size=6))
def test_missing_is_wanted_less_done_in_order_and_disjoint(wanted, done):
    gaps = offsets.missing(wanted, done)

    assert numbers(*gaps) == numbers(wanted) - numbers(*done)
    assert sum(map(len, gaps)) == len(numbers(*gaps))
    assert all(left.end < right.start for left, right in pairwise(gaps))
    assert all(len(gap) for gap in gaps)


def test_missing_in_figures():
    done = [OffsetRange(8, 9), OffsetRange(0, 3), OffsetRange(4, 6)]
    assert offsets.missing(OffsetRange(0, 10), done) == [OffsetRange(3, 4), OffsetRange(6, 8), OffsetRange(9, 10)]


@given(st.lists(ranges(), max_size=8))
def test_merged_keeps_the_offsets_in_the_fewest_ranges(parts):
    result = offsets.merged(parts)

    assert numbers(*result) == numbers(*parts)
    assert all(left.end < right.start for left, right in pairwise(result))
    assert all(len(part) for part in result)


def test_merged_joins_neighbours():
    assert offsets.merged([OffsetRange(5, 9), OffsetRange(0, 5)]) == [OffsetRange(0, 9)]


def test_between_starts_at_zero_where_nothing_is_known_and_is_never_inverted():
    assert offsets.between({0: 5, 2: 9}, {0: 7, 1: 3, 2: 4}) == {
        0: OffsetRange(5, 7),
        1: OffsetRange(0, 3),
        2: OffsetRange(9, 9),
    }


def test_starts_ends_and_total():
    made = {0: OffsetRange(2, 5), 1: OffsetRange(4, 4)}
    assert offsets.starts(made) == {0: 2, 1: 4}
    assert offsets.ends(made) == {0: 5, 1: 4}
    assert offsets.total(made) == 3


def test_lower_knows_only_what_both_know():
    assert offsets.lower({0: 5, 1: 2, 2: 1}, {0: 4, 1: 3, 3: 9}) == {0: 4, 1: 2}


@pytest.mark.parametrize(
    ("position", "is_there", "lacks"),
    [
        ({0: 5, 1: 3}, True, 0),
        ({0: 6, 1: 9}, True, 0),
        ({0: 4, 1: 9}, False, 1),
        ({0: 5}, False, 3),
        ({}, False, 8),
    ],
)
def test_reached_and_behind_go_by_each_partition(position, is_there, lacks):
    target = {0: 5, 1: 3}
    assert offsets.reached(position, target) is is_there
    assert offsets.behind(position, target) == lacks


def test_spark_json_is_sorted_and_without_spaces():
    assert offsets.to_spark_json("visits", {10: 1, 2: 0}) == '{"visits":{"2":0,"10":1}}'


@given(st.dictionaries(st.integers(0, 300), st.integers(-2, 2**63 - 1)))
def test_spark_json_round_trip(vector):
    assert offsets.from_spark_json(offsets.to_spark_json("visits", vector), "visits", "from") == vector


@pytest.mark.parametrize(
    "text",
    [
        "abc",
        "",
        "[]",
        "null",
        '"visits"',
        "{}",
        '{"other":{"0":1}}',
        '{"visits":{"0":1},"other":{"0":1}}',
        '{"visits":[0,1]}',
        '{"visits":{"0":"x"}}',
        '{"visits":{"0":1.5}}',
        '{"visits":{"0":1e3}}',
        '{"visits":{"0":true}}',
        '{"visits":{"0":null}}',
        '{"visits":{"0":-3}}',
        '{"visits":{"0":"--5"}}',
        '{"visits":{"--5":0}}',
        '{"visits":{"zero":1}}',
        '{"visits":{"\u0663":1}}',
        '{"visits":{"-":1}}',
        pytest.param('{"visits":{"0":"' + "9" * 5_000 + '"}}', id="5,000 digits"),
        pytest.param('{"visits":' + "[" * 9_000, id="9,000 levels"),
    ],
)
def test_other_text_than_offsets_is_refused_with_field_and_example(text):
    with pytest.raises(RefusedError) as raised:
        offsets.from_spark_json(text, "visits", "from")

    assert raised.value.field == "from"
    assert '{"visits":{"0":23,"1":0}}' in raised.value.cure


vectors = st.dictionaries(st.integers(0, 4), ranges(highest=500), max_size=4)


@given(vectors, st.integers(1, 90))
def test_chunks_are_the_whole_in_order_none_empty_all_bounded(whole, size):
    chunks = cut(whole, size)

    for partition, wanted in whole.items():
        parts = [chunk[partition] for chunk in chunks]
        assert numbers(*parts) == numbers(wanted)
        assert all(left.end == right.start for left, right in pairwise(parts))
    assert all(offsets.total(chunk) for chunk in chunks)
    # Shares are cut at whole offsets: a chunk may have one more a partition.
    assert all(offsets.total(chunk) <= size + len(whole) for chunk in chunks)


def test_chunks_advance_all_partitions_alike():
    assert cut({0: OffsetRange(0, 100), 1: OffsetRange(10, 60)}, 75) == [
        {0: OffsetRange(0, 50), 1: OffsetRange(10, 35)},
        {0: OffsetRange(50, 100), 1: OffsetRange(35, 60)},
    ]
    assert cut({0: OffsetRange(4, 4)}, 10) == []
    assert len(cut({0: OffsetRange(0, 1_000_001)}, 500_000)) == 3
