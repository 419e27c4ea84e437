"""What a cut-over asks before it says what it intends, and once more in the transaction that moves the pointer."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RetryError, WorldMovedError
from rewind.core.horizon import Frontier
from rewind.registry import generations, leases, rewinds, verdicts
from rewind.registry.database import now, writing
from rewind.registry.verdicts import Verdict
from rewind.steps.lifecycle import cut_over
from rewind.steps.lifecycle.cut_over import Switch
from tests.support.fakes import generation, installation, plan

OLD, NEW, REWIND = "visits_converter-g1", "visits_converter-g2", "rw-1"
SECOND = timedelta(seconds=1)


@pytest.fixture
def settings(tmp_path):
    """A rewind that was validated and approved, whose candidate runs."""
    made = installation(tmp_path)
    with writing(made.registry_url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, OLD)
        rewinds.open_rewind(connection, REWIND, plan())
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), REWIND)
        rewinds.begin_step(connection, REWIND, "backfill")
        rewinds.end_step(connection, REWIND, "backfill", 1, "done", {})
        leases.take(connection, NEW, leases.this_driver())
    return made


def ready(settings, age=SECOND, approved=True):
    with writing(settings.registry_url) as connection:
        verdicts.store(connection, REWIND, Verdict(1, 1, lifecycle.PASS, {}, {}, {}, [], "", now() - age))
        if approved:
            verdicts.answer(connection, REWIND, "approve", "ann", "")
        switch = Switch(REWIND, plan(), generations.read(connection, OLD), generations.read(connection, NEW))
    return cut_over._ready(settings, switch)


def intent(settings):
    with writing(settings.registry_url) as connection:
        return rewinds.fact(connection, REWIND, "cut_over.intent")


def test_a_verdict_of_within_a_day_is_acted_on_and_the_intent_is_recorded(settings):
    assert ready(settings, cut_over.OLDEST_VERDICT - timedelta(minutes=1)).attempt == 1
    assert intent(settings) == {"verdict_attempt": 1}


def test_a_verdict_that_is_too_old_is_not_acted_on(settings):
    with pytest.raises(RefusedError, match=r"verdict: is of .*, older than 1 day, 0:00:00\. Run validate again"):
        ready(settings, cut_over.OLDEST_VERDICT + SECOND)
    assert intent(settings) is None


def test_a_verdict_that_nobody_approved_is_not_acted_on(settings):
    with pytest.raises(RefusedError, match="verdict: rw-1 is not approved"):
        ready(settings, approved=False)
    assert intent(settings) is None


def test_a_pointer_that_has_moved_since_the_plan_is_left_alone(settings):
    with writing(settings.registry_url) as connection:
        connection.exec_driver_sql("UPDATE pointers SET epoch = 2")
    with pytest.raises(
        WorldMovedError, match=f"pipeline: the pointer is at {OLD} at epoch 2. Abort, and make a new plan"
    ):
        ready(settings)
    assert intent(settings) is None


def test_a_candidate_without_a_living_driver_does_not_become_live(settings):
    with writing(settings.registry_url) as connection:
        leases.give_back(connection, NEW, 1)
    with pytest.raises(RefusedError, match=f"job_id: {NEW} has no living driver"):
        ready(settings)
    assert intent(settings) is None


# --- the move


@pytest.fixture
def moved(settings, monkeypatch):
    """Move the pointer as a cut-over does once all is proved."""
    ready(settings)
    monkeypatch.setattr(cut_over, "possibly_repeated", lambda *_: {})
    recheck = SimpleNamespace(found=SimpleNamespace(counts={"rows": 0}), frontier=Frontier({}))

    def move():
        with writing(settings.registry_url) as connection:
            switch = Switch(REWIND, plan(), generations.read(connection, OLD), generations.read(connection, NEW))
        return cut_over._moved(settings, switch, recheck)

    return move


def live(settings):
    with writing(settings.registry_url) as connection:
        found, epoch = generations.live(connection, "visits_converter")
        return found.job_id, epoch


def test_a_move_ends_the_grace_of_older_standbys_and_no_other(settings, moved):
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(number=3, state=lifecycle.STANDBY), None)
        generations.set_grace(connection, "visits_converter-g3", now() + timedelta(hours=1))
    assert moved()["epoch"] == 2
    assert live(settings) == (NEW, 2)
    with writing(settings.registry_url) as connection:
        assert generations.grace_until(connection, "visits_converter-g3") <= now()
        assert generations.grace_until(connection, OLD) > now() + timedelta(minutes=59)


def test_an_approval_that_no_longer_holds_moves_nothing(settings, moved):
    with writing(settings.registry_url) as connection:
        rewinds.begin_step(connection, REWIND, "backfill")
        rewinds.end_step(connection, REWIND, "backfill", 2, "done", {})
    with pytest.raises(RefusedError, match="validated attempt 1 of backfill, backfilled attempt 2"):
        moved()
    assert live(settings) == (OLD, 1)


def test_a_live_job_that_began_to_publish_again_moves_nothing(settings, moved, monkeypatch):
    def publishes(*_):
        raise RetryError(f"{OLD} has not stopped publishing yet")

    monkeypatch.setattr(cut_over.publishing, "check_stopped", publishes)
    with pytest.raises(RetryError, match="has not stopped publishing yet"):
        moved()
    assert live(settings) == (OLD, 1)


def test_whoever_hears_of_a_switch_finds_its_position_in_the_new_output(settings, moved, monkeypatch):
    done: list[str] = []
    monkeypatch.setattr(cut_over, "Broker", lambda _: None)
    monkeypatch.setattr(cut_over.consumer_groups, "carry_out", lambda *_: done.append("groups moved") or ["shop"])
    monkeypatch.setattr(cut_over.announce, "publish", lambda *_: done.append("announced"))
    moved()
    assert cut_over._cut_over(settings, REWIND)["consumers"] == ["shop"]
    assert done == ["groups moved", "announced"]
