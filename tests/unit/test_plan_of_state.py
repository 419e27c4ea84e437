"""A plan tells where the candidate's state is another than live's: live could not go on with that code."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.core.planning.differences import Difference
from rewind.core.planning.plan import explain
from rewind.core.planning.planner import make_plan
from tests.support import fakes
from tests.support.fakes import CODE, PIPELINE
from tests.support.plans import NOW, request

OLD, NEW = ("Aggregate struct<n:bigint>",), ("Aggregate struct<n:bigint,last:timestamp>",)


def planned(kept, found):
    live = fakes.generation(PIPELINE)
    live = replace(live, frozen={**live.frozen, "state": list(kept)})
    seen = fakes.world(lifecycle=fakes.FakeLifecycle(live))
    return make_plan(request(), PIPELINE, replace(CODE, state=found), seen, NOW)


def test_another_state_is_a_difference_that_is_named():
    made = planned(OLD, NEW)
    assert made.differences[0] == Difference("state", OLD[0], NEW[0])
    assert made.state == NEW
    assert any("visits_converter-g1 could not go on with this code" in line for line in explain(made))


def test_a_candidate_that_keeps_state_beside_a_job_that_keeps_none():
    with pytest.raises(RefusedError) as raised:
        make_plan(request(), replace(PIPELINE, stateful=True), CODE, fakes.world(), NOW)
    assert raised.value.field == "stateful"
    assert "visits_converter-g1 keeps no state" in raised.value.problem


def test_the_same_state_is_none():
    made = planned(NEW, NEW)
    assert [difference.what for difference in made.differences if difference.what == "state"] == []
    assert not any("could not go on" in line for line in explain(made))


MINUTE = 60_000
BEGIN = 9 * 60 + 34
"""When the event at offset 0 happened, in minutes of the day: that at offset n did so n minutes later."""
COUNTER = replace(
    PIPELINE,
    stateful=True,
    state_horizon="PT20M",
    closes_at="window(event_time, '10 minutes').end",
    output_key=("window_start",),
)


def asked_from_30(state, mirror_from):
    """Plan a rewind from offset 30, within window 10:00, which holds the offsets 26 to 35."""
    live = replace(fakes.generation(COUNTER), start={0: 0}, handoff={0: 0})
    live = replace(live, frozen={**live.frozen, "state": list(state)})
    day = int(datetime(2025, 9, 4, tzinfo=UTC).timestamp() * 1000)
    batches = [
        Batch(n, {0: n}, {0: n + 1}, 1, NOW, 0, day + (BEGIN + n - 1 - 10) * MINUTE if n else 0) for n in range(60)
    ]
    seen = fakes.world(
        fakes.topic({0: 0}, {0: 60}),
        fakes.mirror({0: (mirror_from, 60)}),
        fakes.FakeLifecycle(live, batches=batches),
    )
    code = replace(CODE, delay=10 * MINUTE, state=state)
    return make_plan(request('{"visits":{"0":30}}'), COUNTER, code, seen, NOW)


def test_c19_the_plan_tells_the_asked_start_the_real_one_and_from_when_results_are_whole():
    moved = asked_from_30(OLD, 0)
    assert (moved.asked, moved.start) == ({0: 30}, {0: 9})
    lines = explain(moved)
    assert any('from     {"visits":{"0":9}}' in line for line in lines)
    assert any('moved back from {"visits":{"0":30}}: results were open there' in line for line in lines)
    assert any("results from 2025-09-04T09:42:00.001Z on" in line for line in lines)

    # The mirror begins within the window: the first one that is trusted begins at 10:10.
    late = asked_from_30(OLD, 28)
    assert (late.asked, late.start) == ({0: 30}, {0: 28})
    assert any("results from 2025-09-04T10:02:00.001Z on" in line for line in explain(late))


def test_c19_a_deduplication_is_whole_a_delay_later():
    lines = explain(asked_from_30(("DeduplicateWithinWatermark event_id",), 28))
    assert any("results from 2025-09-04T10:12:00.001Z on" in line for line in lines)
