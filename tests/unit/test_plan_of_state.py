"""A plan tells where the candidate's state is another than live's: live could not go on with that code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rewind.core.differences import Difference
from rewind.core.errors import RefusedError
from rewind.core.plan import explain
from rewind.core.planner import make_plan
from tests import fakes
from tests.unit.test_core_planner import CODE, NOW, PIPELINE, request

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
