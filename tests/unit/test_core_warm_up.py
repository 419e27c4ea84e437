"""From where a rewind of a pipeline with state reads, and which of its results are whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.core.pipeline import Pipeline
from rewind.core.planning import warm_up
from rewind.core.planning.warm_up import Begin
from tests.support import fakes

MINUTE = 60_000
DELAY = 20 * MINUTE
COUNTER = Pipeline(
    name="visits_converter",
    source_topic="visits",
    schema="event_time TIMESTAMP",
    output_topic="counted",
    output_key=("start",),
    stateful=True,
    state_horizon="PT30M",
    closes_at="window(event_time, '10 minutes').end",
)
NOW = datetime(2025, 9, 4, tzinfo=UTC)


def batch(number, watermark):
    """Batch `number` reads a record a partition; it closes results by a watermark in minutes."""
    return Batch(number, {0: number, 1: number}, {0: number + 1, 1: number + 1}, 2, NOW, 0, watermark * MINUTE)


# The event time before batch n is that of its watermark and twenty minutes more.
BATCHES = [batch(0, 0), batch(1, 400), batch(2, 410), batch(3, 425), batch(4, 430), batch(5, 450)]


def begin(asked, *, earliest=0, batches=BATCHES, pipeline=COUNTER, start=0, frozen=None):
    live = fakes.generation(start={0: start, 1: start})
    live = replace(live, frozen={**live.frozen, **(frozen or {})})
    history = fakes.FakeLifecycle(live, batches=batches)
    return warm_up.begin({0: asked, 1: asked}, {0: earliest, 1: earliest}, pipeline, DELAY, live, history)


def test_from_the_earliest_record_every_result_is_whole():
    assert begin(0) == Begin({0: 0, 1: 0}, None)
    assert begin(3, earliest=3) == Begin({0: 3, 1: 3}, None)


def test_a_start_moves_back_to_cover_the_results_that_were_open_there():
    # At offset 5 the watermark stood at 450: results were open that began at 440 or later, and a record of such a
    # result raised the watermark to 420 or more. Batch 2 is the last that began below that.
    assert begin(6) == Begin({0: 2, 1: 2}, (410 + 20) * MINUTE + 1)


def test_a_partition_that_is_asked_from_earlier_stays_there():
    live = fakes.generation(start={0: 0, 1: 0})
    history = fakes.FakeLifecycle(live, batches=BATCHES)
    made = warm_up.begin({0: 6, 1: 1}, {0: 0, 1: 0}, COUNTER, DELAY, live, history)
    assert made.start == {0: 2, 1: 1}


def test_where_the_mirror_begins_later_what_was_open_at_the_asked_start_is_not_trusted():
    assert begin(6, earliest=4) == Begin({0: 4, 1: 4}, (450 + 20) * MINUTE + 1)


def test_where_no_batch_lies_far_enough_back_all_that_live_has_read_is_needed():
    assert begin(2) == Begin({0: 0, 1: 0}, None)


def test_what_live_itself_did_not_read_is_trusted_no_more_than_live():
    later = [
        replace(one, start={0: one.batch + 7, 1: one.batch + 7}, end={0: one.batch + 8, 1: one.batch + 8})
        for one in BATCHES
    ]
    assert begin(9, batches=later, start=7) == Begin({0: 7, 1: 7}, (400 + 20) * MINUTE + 1)
    assert begin(9, batches=later, start=7, frozen={"trusted_from": 123}).trusted_from == 123


@pytest.mark.parametrize(
    ("asked", "more", "problem"),
    [
        (3, {"pipeline": replace(COUNTER, state_horizon="unbounded")}, "has an unbounded state horizon"),
        (3, {"batches": []}, "no batch of visits_converter-g1, which began at {0: 0, 1: 0}"),
        (3, {"start": 4}, "which began at {0: 4, 1: 4}, shows what was open there"),
    ],
)
def test_what_nothing_can_tell_is_refused(asked, more, problem):
    with pytest.raises(RefusedError) as raised:
        begin(asked, **more)
    assert raised.value.field == "from"
    assert problem in raised.value.problem
    assert "earliest" in raised.value.cure


def test_a_release_without_history_is_whole_once_all_that_was_open_has_closed():
    live = fakes.generation()
    history = fakes.FakeLifecycle(live, batches=BATCHES)
    assert warm_up.released(COUNTER, DELAY, live, history) == (450 + 20) * MINUTE + 1
    with pytest.raises(RefusedError):
        warm_up.released(replace(COUNTER, state_horizon="unbounded"), DELAY, live, history)


@pytest.mark.parametrize("earliest", [0, 28])
def test_c19_a_start_within_a_window_moves_back_or_the_window_is_warm_up(earliest):
    """Window 10:00-10:10 has the events at offsets 26 to 35, a minute apart, each a batch; it is asked from 30."""
    delay, first = 10 * MINUTE, 10 * 60 - 26

    def at(offset):
        return Batch(offset, {0: offset}, {0: offset + 1}, 1, NOW, 0, (first + offset - 1) * MINUTE - delay)

    live = fakes.generation(start={0: 0})
    pipeline = replace(COUNTER, state_horizon="PT20M")
    history = fakes.FakeLifecycle(live, batches=[at(offset) for offset in range(36)])
    made = warm_up.begin({0: 30}, {0: earliest}, pipeline, delay, live, history)
    if earliest:
        # The mirror lacks the window's first events: the first window that is whole begins at 10:10.
        assert made.start == {0: 28}
        assert trusted_window(made) == 10 * 60 + 10
    else:
        assert made.start[0] <= 26
        assert trusted_window(made) <= 10 * 60


def trusted_window(made):
    """Return the start of the first window of ten minutes that is trusted, in minutes since 1970."""
    return -(-made.trusted_from // (10 * MINUTE)) * 10


def test_c19_a_deduplication_depends_on_what_came_a_delay_before_its_results():
    kept = ("DeduplicateWithinWatermark event_id",)
    assert warm_up.after_repeats(100, kept, DELAY) == 100 + DELAY
    assert warm_up.after_repeats(None, kept, DELAY) is None
    assert warm_up.after_repeats(100, ("Aggregate struct<n:bigint>",), DELAY) == 100
