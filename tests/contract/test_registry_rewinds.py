"""Plans, rewinds, their steps and the values they fix once."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.core.planning.plan import Request
from rewind.registry import rewinds, schema
from rewind.registry.database import writing
from tests.support.registry import G1, G2, a_plan, raced

# --- plans and rewinds


def test_a_plan_is_stored_once_and_read_back(registry):
    made = a_plan()
    for _ in range(2):
        rewinds.store_plan(registry, made)
    assert rewinds.read_plan(registry, made.id) == made
    assert registry.execute(select(func.count()).select_from(schema.plans)).scalar() == 1


def test_an_unknown_plan_names_the_field(registry):
    with pytest.raises(RefusedError) as raised:
        rewinds.read_plan(registry, "0123456789ab")
    assert (raised.value.field, raised.value.problem) == ("apply_plan", "plan '0123456789ab' is unknown")


def test_a_rewind_is_opened_once(registry):
    made = a_plan()
    for _ in range(2):
        rewinds.open_rewind(registry, "rw-1", made)

    found, plan = rewinds.read_active(registry, "rw-1")
    assert (found.state, found.plan_id, found.job_id, found.reason, plan) == ("active", made.id, G2, "a bug", made)
    assert rewinds.active_of(registry, "visits_converter") == found
    assert [r.id for r in rewinds.all_of(registry, "visits_converter")] == ["rw-1"]


def test_a_second_active_rewind_is_refused(registry):
    rewinds.open_rewind(registry, "rw-1", a_plan())
    with pytest.raises(RefusedError) as raised:
        rewinds.open_rewind(registry, "rw-2", a_plan())
    assert (raised.value.field, raised.value.problem) == ("pipeline", "rewind rw-1 of visits_converter is active")


def test_an_active_rewind_keeps_its_plan(registry):
    made = a_plan()
    rewinds.open_rewind(registry, "rw-1", made)
    with pytest.raises(RefusedError, match=f"rewind rw-1 has plan {made.id}"):
        rewinds.open_rewind(registry, "rw-1", a_plan(3))


@pytest.mark.parametrize("end", [lifecycle.FINISHED, lifecycle.FAILED, lifecycle.ABORTED])
def test_an_ended_rewind_stays_ended(registry, end):
    made = a_plan()
    rewinds.open_rewind(registry, "rw-1", made)
    rewinds.close(registry, "rw-1", end)
    ended_at = rewinds.read(registry, "rw-1").ended_at
    rewinds.close(registry, "rw-1", lifecycle.FAILED)

    assert (rewinds.read(registry, "rw-1").state, rewinds.read(registry, "rw-1").ended_at) == (end, ended_at)
    assert rewinds.active_of(registry, "visits_converter") is None
    for act in (lambda: rewinds.read_active(registry, "rw-1"), lambda: rewinds.open_rewind(registry, "rw-1", made)):
        with pytest.raises(RefusedError, match=f"rewind rw-1 is {end}"):
            act()
    rewinds.open_rewind(registry, "rw-2", made)


def test_an_unknown_rewind_is_refused(registry):
    with pytest.raises(RefusedError, match="rewind 'rw-1' is unknown"):
        rewinds.read(registry, "rw-1")
    assert rewinds.find(registry, "rw-1") is None


def test_active_rewinds_pin_mirror_versions_and_watch_the_job_they_replace(registry):
    rewinds.open_rewind(registry, "rw-1", a_plan())
    other = a_plan(request=Request("other"), topic="carts", live_job_id="other-g4", mirror_version=-1)
    rewinds.open_rewind(registry, "rw-2", other)

    assert rewinds.pinned_versions(registry, "visits") == [7]
    assert rewinds.pinned_versions(registry, "carts") == []
    assert rewinds.watched_standbys(registry) == {G1, "other-g4"}
    rewinds.close(registry, "rw-1", lifecycle.FINISHED)
    assert rewinds.pinned_versions(registry, "visits") == []
    assert rewinds.watched_standbys(registry) == {"other-g4"}


# --- steps, facts and controls


def test_attempts_at_a_step_are_counted_and_keep_their_evidence(registry):
    assert rewinds.begin_step(registry, "rw-1", "backfill") == 1
    rewinds.end_step(registry, "rw-1", "backfill", 1, "failed", {"error": "x"})
    assert rewinds.begin_step(registry, "rw-1", "backfill") == 2
    rewinds.set_cpu(registry, "rw-1", "backfill", 3.14159)
    rewinds.end_step(registry, "rw-1", "backfill", 2, "done", {"rows": 5})
    assert rewinds.begin_step(registry, "rw-1", "approve") == 1
    assert rewinds.begin_step(registry, "rw-2", "backfill") == 1

    seen = [(s.step, s.attempt, s.state, s.cpu_seconds, s.evidence) for s in rewinds.steps_of(registry, "rw-1")]
    assert seen == [
        ("backfill", 1, "failed", None, {"error": "x"}),
        ("backfill", 2, "done", 3.14, {"rows": 5}),
        ("approve", 1, "running", None, None),
    ]
    assert rewinds.last_attempt(registry, "rw-1", "backfill") == 2
    assert rewinds.last_attempt(registry, "rw-1", "backfill", "failed") == 1
    assert rewinds.last_attempt(registry, "rw-1", "approve", "done") == 0


def test_a_fact_is_fixed_once(registry):
    assert rewinds.fix(registry, "rw-1", "handoff", {"0": 5}) == {"0": 5}
    at = rewinds.fact_at(registry, "rw-1", "handoff")
    assert rewinds.fix(registry, "rw-1", "handoff", {"0": 9}) == {"0": 5}
    assert (rewinds.fact(registry, "rw-1", "handoff"), rewinds.fact_at(registry, "rw-1", "handoff")) == ({"0": 5}, at)
    assert rewinds.fact(registry, "rw-2", "handoff") is None
    assert rewinds.fact_at(registry, "rw-2", "handoff") is None


def test_of_racing_values_one_is_fixed_and_racing_attempts_are_counted_once_each(url):
    def fixed(number):
        with writing(url) as connection:
            return rewinds.fix(connection, "rw-1", "handoff", number)

    def attempt(_):
        with writing(url) as connection:
            return rewinds.begin_step(connection, "rw-1", "backfill")

    assert len(set(raced(fixed, 4))) == 1
    assert sorted(raced(attempt, 4)) == [1, 2, 3, 4]


def test_controls_of_a_backfill(registry):
    rewinds.open_rewind(registry, "rw-1", a_plan())
    assert rewinds.controls(registry, "rw-1") == (False, None)
    rewinds.set_controls(registry, "rw-1", paused=True, records_per_second=500)
    assert rewinds.controls(registry, "rw-1") == (True, 500)
    rewinds.set_controls(registry, "rw-1", paused=False, records_per_second=None)
    assert rewinds.controls(registry, "rw-1") == (False, None)


def test_a_bad_limit_and_an_ended_rewind_are_not_controlled(registry):
    rewinds.open_rewind(registry, "rw-1", a_plan())
    for limit in (0, -1, 2**31):
        with pytest.raises(RefusedError) as raised:
            rewinds.set_controls(registry, "rw-1", paused=False, records_per_second=limit)
        assert raised.value.field == "records_per_second"
    rewinds.set_controls(registry, "rw-1", paused=False, records_per_second=2**31 - 1)
    assert rewinds.controls(registry, "rw-1") == (False, 2**31 - 1)
    rewinds.set_controls(registry, "rw-1", paused=False, records_per_second=None)
    rewinds.close(registry, "rw-1", lifecycle.ABORTED)
    with pytest.raises(RefusedError, match="rewind rw-1 is aborted"):
        rewinds.set_controls(registry, "rw-1", paused=True, records_per_second=None)
    assert rewinds.controls(registry, "rw-1") == (False, None)
