"""A rollback: the standby is live again once it has passed live, by one compare-and-set, and never a job that ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RetryError, WorldMovedError
from rewind.core.model import Batch
from rewind.declared import forms
from rewind.registry import generations, leases, progress, rewinds, schema, streams
from rewind.registry.database import now, writing
from rewind.runtime import announce, collect, rollback
from rewind.runtime.drivers import supervise
from rewind.steps.lifecycle import rollback as step
from tests.support.fakes import generation, installation, plan

PIPELINE, OLD, NEW, ROLLBACK = "visits_converter", "visits_converter-g1", "visits_converter-g2", "rb-1"
HOUR = timedelta(hours=1)
ACT = {"dry_run": False, "reason": "wrong rates"}


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def told(monkeypatch):
    """The epochs that were published; what publishing does has tests of its own."""
    epochs = []
    monkeypatch.setattr(announce, "publish", lambda settings, pipeline, epoch: epochs.append((pipeline, epoch)))
    return epochs


@pytest.fixture
def switched(settings):
    """A switch from g1, which is standby for an hour and runs, to g2; both at offset 10, watched by a rewind."""
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, OLD)
        rewinds.open_rewind(connection, "rw-1", plan())
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), "rw-1")
        generations.switch(connection, PIPELINE, OLD, NEW, 1, HOUR)
        for job in (OLD, NEW):
            streams.wish(connection, job, streams.GENERATION, streams.RUN)
            leases.take(connection, job, leases.this_driver())
            reach(connection, job, 10)


def reach(connection, job, offset):
    progress.record(connection, job, 1, Batch(offset, {0: 0, 1: 0}, {0: offset, 1: offset}, offset, now()))


def states(settings):
    with writing(settings.registry_url) as connection:
        found, epoch = generations.live(connection, PIPELINE)
        return found.job_id, epoch, {g.job_id: g.state for g in generations.all_of(connection, PIPELINE)}


def roll_back(settings, rollback_id=ROLLBACK, **asked):
    step.run(settings, rollback_id, PIPELINE, {**ACT, **asked})


def test_the_standby_is_live_again_and_the_watched_rewind_has_ended(settings, switched, told):
    roll_back(settings)
    assert states(settings) == (OLD, 3, {OLD: "live", NEW: "standby"})
    assert told == [(PIPELINE, 3)]
    with writing(settings.registry_url) as connection:
        assert rewinds.read(connection, "rw-1").state == "rolled_back"
        assert generations.grace_until(connection, OLD) is None
        kept = generations.grace_until(connection, NEW)
        assert timedelta(minutes=59) < kept - now() <= HOUR
        body = announce.body(connection, PIPELINE, 3)
        assert (body["job_id"], body["previous_job_id"]) == (OLD, NEW)
        assert rollback.done(connection, ROLLBACK) == {
            "epoch": 3,
            "from": NEW,
            "to": OLD,
            "rewind_id": "rw-1",
            "reason": "wrong rates",
        }


def test_the_same_rollback_again_moves_nothing_and_tells_the_same(settings, switched, told):
    roll_back(settings)
    roll_back(settings)
    assert states(settings)[:2] == (OLD, 3)
    assert told == [(PIPELINE, 3), (PIPELINE, 3)]


def test_the_way_forward_stays_open(settings, switched, told):
    roll_back(settings)
    roll_back(settings, "rb-2")
    assert states(settings) == (NEW, 4, {OLD: "standby", NEW: "live"})


def test_a_dry_run_tells_and_changes_nothing(settings, switched, told):
    with writing(settings.registry_url) as connection:
        reach(connection, NEW, 13)
    text = step.preview(settings, PIPELINE, forms.checked({}, forms.ROLLBACK, "rollback_visits"))
    assert text == f"{PIPELINE}: from {NEW} at epoch 2 back to {OLD}; the standby is 6 offsets behind live"
    roll_back(settings, dry_run=True)
    assert (states(settings)[:2], told) == ((NEW, 2), [])
    with writing(settings.registry_url) as connection:
        assert rewinds.steps_of(connection, ROLLBACK) == []


def test_a_standby_that_is_behind_is_waited_for_within_a_limit(settings, switched, told, monkeypatch):
    monkeypatch.setattr(step, "PATIENCE_SECONDS", 0)
    with writing(settings.registry_url) as connection:
        reach(connection, NEW, 13)
    with pytest.raises(RetryError, match=f"{OLD} is 6 offsets short of live's positions"):
        roll_back(settings)
    assert (states(settings)[:2], told) == ((NEW, 2), [])
    with writing(settings.registry_url) as connection:
        # Live goes on meanwhile; what the standby must pass was frozen by the first attempt.
        reach(connection, NEW, 20)
        reach(connection, OLD, 13)
    roll_back(settings)
    assert states(settings)[:2] == (OLD, 3)


def test_without_a_standby_it_is_refused(settings, told):
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, OLD)
    with pytest.raises(RefusedError, match="to: visits_converter has no standby"):
        roll_back(settings)
    with pytest.raises(RefusedError, match="pipeline: 'carts' has no live job"):
        step.run(settings, ROLLBACK, "carts", ACT)


@pytest.mark.shows("secure", id_of_another_rollback="refused")
def test_a_job_that_does_not_stand_by_is_no_target(settings, switched, told):
    with writing(settings.registry_url) as connection:
        made = generation(number=1, state=lifecycle.CANDIDATE)
        config = {**made.frozen["config"], "name": "carts", "output_topic": "carts"}
        names = {"job_id": "carts-g1", "output_topic": "carts-g1", "dead_letter_topic": "carts-g1-dead"}
        of_carts = replace(made, pipeline="carts", frozen={**made.frozen, "config": config}, **names)
        generations.create(connection, of_carts, None)
        connection.execute(
            update(schema.generations)
            .where(schema.generations.c.job_id == "carts-g1")
            .values(state=lifecycle.STANDBY, grace_until=now() + HOUR)
        )
    with pytest.raises(RefusedError, match="to: carts-g1 is not standby"):
        roll_back(settings, to="carts-g1")
    with pytest.raises(RefusedError, match="to: visits_converter-g7 is not standby"):
        roll_back(settings, to="visits_converter-g7")
    with pytest.raises(RefusedError, match="to: "):
        roll_back(settings, to="../live")


def test_after_its_grace_a_standby_is_no_target_unless_it_is_watched(settings, switched, told):
    with writing(settings.registry_url) as connection:
        generations.set_grace(connection, OLD, now())
        assert rollback.find(connection, PIPELINE).standby_job_id == OLD
        rewinds.close(connection, "rw-1", lifecycle.FINISHED)
    with pytest.raises(RefusedError, match="or its grace period is over"):
        roll_back(settings)


def test_a_standby_that_drains_or_has_no_driver_is_no_target(settings, switched, told):
    with writing(settings.registry_url) as connection:
        streams.wish(connection, OLD, streams.GENERATION, streams.DRAIN)
    with pytest.raises(RefusedError, match=f"{OLD} has been asked to drain"):
        roll_back(settings)
    with writing(settings.registry_url) as connection:
        streams.wish(connection, OLD, streams.GENERATION, streams.RUN)
        leases.give_back(connection, OLD, 1)
    with pytest.raises(RefusedError, match=f"{OLD} has no living driver"):
        roll_back(settings)
    assert states(settings)[:2] == (NEW, 2)


def test_a_pointer_that_moved_since_it_was_decided_is_left_alone(settings, switched, told):
    with writing(settings.registry_url) as connection:
        target = rollback.fixed(connection, "rb-late", PIPELINE)
    roll_back(settings)
    roll_back(settings, "rb-2")
    with writing(settings.registry_url) as connection, pytest.raises(WorldMovedError):
        rollback.switch(connection, "rb-late", target, "", HOUR)
    assert states(settings)[:2] == (NEW, 4)


def test_a_standby_that_was_wished_to_drain_since_it_was_decided_stays_one(settings, switched, told):
    with writing(settings.registry_url) as connection:
        target = rollback.fixed(connection, ROLLBACK, PIPELINE)
        streams.wish(connection, OLD, streams.GENERATION, streams.DRAIN)
        with pytest.raises(RefusedError, match=f"{OLD} has been asked to drain"):
            rollback.switch(connection, ROLLBACK, target, "", HOUR)
    assert states(settings) == (NEW, 2, {OLD: "standby", NEW: "live"})


def test_a_collection_that_had_begun_does_not_retire_what_was_rolled_back_to(settings, switched, told, monkeypatch):
    with writing(settings.registry_url) as connection:
        rewinds.close(connection, "rw-1", lifecycle.FINISHED)
        generations.set_grace(connection, OLD, now())

    def meanwhile(settings, job_id):
        with writing(settings.registry_url) as connection:
            streams.wish(connection, OLD, streams.GENERATION, streams.RUN)
            generations.set_grace(connection, OLD, now() + HOUR)
        roll_back(settings)

    monkeypatch.setattr(supervise, "end", meanwhile)
    with pytest.raises(RefusedError, match=f"{OLD} is live and cannot become retired"):
        collect.retire_and_collect(settings, OLD)
    assert states(settings) == (OLD, 3, {OLD: "live", NEW: "standby"})


@pytest.mark.parametrize("bad", [{"grace": "an hour"}, {"dry_run": "no"}, {"from": "g1"}, {"reason": 7}])
def test_a_bad_form_is_refused_by_its_field(settings, switched, bad):
    with pytest.raises(RefusedError, match=f"^{next(iter(bad))}: "):
        roll_back(settings, **bad)
    assert states(settings)[:2] == (NEW, 2)
