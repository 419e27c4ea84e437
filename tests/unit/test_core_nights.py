"""Which offsets a night takes, and what samples may be asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rewind.core import nights
from rewind.core.errors import RefusedError
from rewind.core.nights import Known, Night, Sample
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import Pipeline

START = datetime(2025, 9, 4, tzinfo=UTC)
DAY = timedelta(days=1)
PIPELINE = Pipeline("visits", "visits", "a STRING", "out")


def night(n: int, length: timedelta = DAY) -> Night:
    return Night("visits", START + n * DAY, START + n * DAY + length, "", Sample())


def known(n: int, first: int, last: int) -> Known:
    return Known(START + n * DAY, START + (n + 1) * DAY, {0: OffsetRange(first, last)})


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], (100, 200)),
        ([known(0, 0, 90)], (90, 200)),
        ([known(0, 0, 120)], (120, 200)),
        # Of the same interval, with another sample.
        ([known(0, 0, 90), known(1, 95, 180)], (95, 180)),
        # The night after it was replayed first.
        ([known(2, 190, 300)], (100, 190)),
        ([known(0, 0, 90), known(2, 210, 300)], (90, 210)),
        # Nights before a gap: what lies in it is the business of those that were missed.
        ([known(-3, 0, 60)], (100, 200)),
        ([known(-3, 0, 130)], (130, 200)),
        ([known(5, 150, 300)], (100, 150)),
    ],
)
def test_a_night_joins_those_beside_it(before, expected):
    found = nights.range_of(night(1), before, {0: 100}, {0: 200}, {0: 1000})
    assert found == {0: OffsetRange(*expected)}


def test_intervals_that_overlap_share_no_offset():
    changed = Night("visits", START + DAY / 2, START + DAY / 2 + DAY, "", Sample())
    assert nights.range_of(changed, [known(0, 0, 90)], {0: 50}, {0: 140}, {0: 1000}) == {0: OffsetRange(90, 140)}


def test_what_cannot_be_replayed_yet_is_left_to_the_next_night():
    first = nights.range_of(night(0), [], {}, {0: 100, 1: 70}, {0: 60, 1: 80})
    assert first == {0: OffsetRange(0, 60), 1: OffsetRange(0, 70)}
    later = Known(night(0).start, night(0).end, first)
    assert nights.range_of(night(1), [later], {0: 100, 1: 70}, {0: 200, 1: 150}, {0: 500, 1: 500}) == {
        0: OffsetRange(60, 200),
        1: OffsetRange(70, 150),
    }


def test_a_partition_that_was_added_begins_with_the_night():
    found = nights.range_of(night(1), [known(0, 0, 90)], {0: 100, 1: 5}, {0: 200, 1: 30}, {0: 1000, 1: 1000})
    assert found == {0: OffsetRange(90, 200), 1: OffsetRange(5, 30)}


def test_a_partition_without_older_records_ends_at_what_can_be_replayed():
    assert nights.range_of(night(0), [], {}, {}, {0: 40}) == {0: OffsetRange(0, 40)}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "sample"),
        ({"keys": 1}, "sample"),
        ({"partitions": "0"}, "partitions"),
        ({"partitions": [-1]}, "partitions"),
        ({"partitions": [True]}, "partitions"),
        ({"partitions": [1.5]}, "partitions"),
        ({"share": 0}, "share"),
        ({"share": 1.1}, "share"),
        ({"share": "1"}, "share"),
        ({"share": True}, "share"),
    ],
)
def test_a_sample_that_makes_no_sense_is_refused(body, field):
    with pytest.raises(RefusedError) as refused:
        nights.sample_of(body)
    assert refused.value.field == field


def test_samples_are_told_apart():
    whole, one, some = (
        nights.sample_of({}),
        nights.sample_of({"partitions": [1, 0, 1]}),
        nights.sample_of({"share": 0.1}),
    )
    assert (whole.whole, one, some.told()) == (True, Sample((0, 1)), "all partitions, 10.00% of the keys")
    assert len({whole.hash, one.hash, some.hash}) == 3
    assert nights.sample_of(one.to_json()).hash == one.hash


def test_a_pipeline_with_state_is_replayed_whole():
    stateful = Pipeline("visits", "visits", "a STRING", "out", stateful=True)
    nights.check_sample(Sample(), stateful, {0: 1})
    with pytest.raises(RefusedError, match="keeps state"):
        nights.check_sample(Sample(share=0.5), stateful, {0: 1})
    with pytest.raises(RefusedError, match="no partition 3"):
        nights.check_sample(Sample((0, 3)), PIPELINE, {0: 1})


def test_the_date_is_that_of_the_zone():
    assert nights.label_of(datetime(2025, 3, 29, 23, 30, tzinfo=UTC), "Europe/Paris") == "2025-03-30"
    with pytest.raises(RefusedError, match="no time zone"):
        nights.label_of(START, "Europe/Nowhere")


def test_an_interval_has_an_order():
    assert nights.interval("2025-09-04T02:00:00+02:00", "2025-09-05T00:00:00Z") == (START, START + DAY)
    with pytest.raises(RefusedError, match="not after"):
        nights.interval("2025-09-05T00:00:00Z", "2025-09-05T00:00:00Z")
