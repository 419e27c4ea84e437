"""What a period is, and that little is read for it: what the commits of a mirror recorded decides where it can."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rewind.core import periods
from rewind.core.offsets import OffsetRange as R
from rewind.core.periods import Period, Span, Strays, milliseconds
from rewind.core.planning import time_range
from rewind.core.planning.resolved_range import Sight
from tests.support.fakes import mirror, topic


def spans(*times, records=10):
    return {0: [Span(R(n * records, (n + 1) * records), records, at) for n, at in enumerate(times)]}


class Looked:
    def __init__(self, answer):
        self.answer, self.parts = answer, []

    def __call__(self, parts):
        self.parts.append(parts)
        return self.answer


def test_what_is_recorded_is_not_read():
    looked = Looked({})
    in_order = spans((0, 9), (10, 19), (20, 29), (30, 39))
    assert periods.within(in_order, Period(10, 30), looked) == {0: R(10, 30)}
    assert periods.within(in_order, Period(40, None), looked) == {}
    assert periods.strays(in_order, {0: R(10, 30)}, Period(10, 30), looked) == Strays(0, 0)
    assert looked.parts == []


def test_only_the_commits_at_both_ends_are_read():
    looked = Looked({0: R(5, 10_016)})
    many = spans((0, 9), *((10, 19) for _ in range(1_000)), (15, 29))
    assert periods.within(many, Period(5, 25), looked) == {0: R(5, 10_016)}
    assert looked.parts == [{0: [R(0, 10), R(10_010, 10_020)]}]


def test_a_commit_that_only_may_hold_one_does_not_end_the_look():
    looked = Looked({0: R(15, 16)})
    assert periods.within(spans((0, 99), (0, 99), None, (90, 99)), Period(40, 50), looked) == {0: R(15, 16)}
    assert looked.parts == [{0: [R(0, 30)]}]


def test_records_of_other_times_are_counted_by_what_is_recorded_and_few_are_read():
    looked = Looked(3)
    mixed = spans((0, 9), (50, 59), (5, 55), (0, 4), None)
    assert periods.strays(mixed, {0: R(0, 50)}, Period(0, 10), looked) == Strays(10 + 3, 10)
    assert looked.parts == [{0: [R(20, 30)]}]


def test_of_very_many_mixed_commits_all_between_them_is_read_at_once():
    looked = Looked(7)
    many = spans(*((0, 50) if n % 2 else (0, 9) for n in range(2 * periods.MOST_PARTS + 3)))
    assert periods.strays(many, {0: R(0, 10_000)}, Period(0, 10), looked) == Strays(7, 0)
    assert looked.parts == [{0: [R(10, 2_020)]}]


@pytest.mark.parametrize(
    ("microseconds", "expected"), [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (-1, 0), (-1_000, -1)]
)
def test_an_instant_is_the_first_timestamp_that_is_not_before_it(microseconds, expected):
    assert milliseconds(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)) == expected


def test_of_a_commit_that_a_range_cuts_the_part_within_it_is_read():
    looked = Looked(4)
    assert periods.strays(spans((50, 59)), {0: R(6, 10)}, Period(0, 10), looked) == Strays(4, 0)
    assert looked.parts == [{0: [R(6, 10)]}]


def test_what_the_mirror_has_read_since_it_was_looked_at_belongs_to_no_plan_of_that_look():
    class Newer:
        def within(self, _topic, _period):
            return {0: R(5, 120), 1: R(70, 80), 2: R(0, 3)}

    now = datetime(2025, 9, 10, tzinfo=UTC)
    seen = Sight(topic({0: 0, 1: 0}, {0: 100, 1: 60}), mirror({0: (0, 100), 1: (0, 60)}), Newer(), {}, now)
    assert time_range.dated("2025-09-04T00:00:00Z", "", seen).found == {0: R(5, 100)}
