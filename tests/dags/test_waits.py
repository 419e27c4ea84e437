"""Waits: when they are over, when they give up, and what they leave in the registry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from rewind_airflow import run, sights, waits
from rewind_airflow.sights import Race
from rewind_airflow.waits import CatchUp, Observe, Supervise
from sqlalchemy import update

from rewind.core.errors import IntegrityError, RetryError
from rewind.core.horizon import Frontier
from rewind.core.model import Batch, Generation, Topic
from rewind.core.offsets import OffsetRange
from rewind.registry import generations, leases, observation, progress, rewinds, schema, streams
from rewind.registry.database import now, writing
from rewind.registry.observation import Look
from rewind.runtime.drivers import supervise
from rewind.runtime.drivers.supervise import Sighting
from rewind.runtime.kafka import broker

NEAR = Race(candidate={0: 950}, live={0: 1_000}, end={0: 1_020}, driven=True, quarantined="")


@pytest.fixture
def steps(installation, rewind_id):
    """Return the attempts at a step: state and evidence of each."""

    def read(step):
        with writing(installation.registry_url) as connection:
            return [(s.state, s.evidence) for s in rewinds.steps_of(connection, rewind_id) if s.step == step]

    return read


@pytest.fixture
def race(monkeypatch):
    """Set what a look at both positions finds."""

    def find(found):
        monkeypatch.setattr(sights, "race", lambda *_: found)

    return find


@pytest.mark.parametrize(
    ("candidate", "live", "end", "driven", "expected"),
    [
        (900, 1_000, 1_000, True, True),
        (899, 1_000, 1_000, True, False),
        (1_000, 1_000, 1_000, False, False),
        # Past a live job that lags: close enough once it is within the gate of it.
        (1_000, 1_000, 5_000, True, True),
        (4_990, 1_000, 5_000, True, True),
        # Live is near the end; the candidate must be too.
        (800, 880, 1_000, True, False),
    ],
)
def test_close(candidate, live, end, driven, expected):
    assert Race({0: candidate}, {0: live}, {0: end}, driven, "").close(gate=100) is expected


def test_catch_up_ends_within_the_gate_and_records_the_lag(context, opened, race, steps):
    opened()
    race(NEAR)
    assert CatchUp(task_id="catch_up").poke(context) is True
    assert steps("catch_up") == [("done", {"behind_live": 50, "lag": 70, "gate": 100, "held_back": 0})]


HELD = Race({0: 10}, {0: 115}, {0: 10}, True, "", {0: OffsetRange(10, 115)})
TOLD = "partition 0 is held back by an open transaction: readable to 10, written to 115"


def test_catch_up_that_waits_for_an_open_transaction_says_so(context, opened, race, steps, capsys):
    """Case P08, and a live job that reads what is not committed: the candidate cannot come nearer."""
    opened()
    race(HELD)
    task = CatchUp(task_id="catch_up")
    assert task.poke(context) is False
    assert f"105 behind live, 0 behind what can be read; gate 100; {TOLD}" in capsys.readouterr().out
    context["ti"].get_first_reschedule_date = lambda _: datetime.now(UTC) - timedelta(hours=1, seconds=1)
    with pytest.raises(AirflowFailException, match=f"105 offsets behind live after 1:00:00: {TOLD}"):
        task.poke(context)
    assert steps("catch_up")[0][1]["held_back"] == 105


def test_catch_up_does_not_wait_for_what_nobody_can_read(context, opened, race, steps):
    opened()
    race(Race({0: 10}, {0: 10}, {0: 10}, True, "", {0: OffsetRange(10, 10_115)}))
    assert CatchUp(task_id="catch_up").poke(context) is True
    assert steps("catch_up") == [("done", {"behind_live": 0, "lag": 0, "gate": 100, "held_back": 10_105})]


def test_catch_up_looks_again_as_one_attempt(context, opened, race, steps):
    opened()
    task = CatchUp(task_id="catch_up")
    race(Race({0: 0}, {0: 1_000}, {0: 1_020}, True, ""))
    assert [task.poke(context), task.poke(context)] == [False, False]
    assert steps("catch_up") == [("running", None)]
    race(NEAR)
    assert task.poke(context) is True
    assert [state for state, _ in steps("catch_up")] == ["done"]


def test_catch_up_fails_on_a_candidate_that_is_set_aside(context, opened, race, steps):
    opened()
    race(Race({0: 0}, {0: 1_000}, {0: 1_020}, False, "visits-g2 is quarantined after 5 failures: boom"))
    with pytest.raises(AirflowFailException, match="quarantined after 5 failures: boom"):
        CatchUp(task_id="catch_up").poke(context)
    assert steps("catch_up")[0][0] == "failed"


def test_catch_up_gives_up_on_a_candidate_that_does_not_come_closer(context, opened, race, steps):
    opened()
    context["ti"].get_first_reschedule_date = lambda _: datetime.now(UTC) - timedelta(hours=1, seconds=1)
    race(Race({0: 0}, {0: 1_000}, {0: 1_020}, True, ""))
    with pytest.raises(AirflowFailException, match="1,000 offsets behind live after 1:00:00"):
        CatchUp(task_id="catch_up").poke(context)
    assert steps("catch_up")[0][0] == "failed"


def test_a_repair_has_nothing_to_catch_up(context, opened, steps):
    opened("repair")
    with pytest.raises(AirflowSkipException):
        CatchUp(task_id="catch_up").poke(context)
    assert steps("catch_up") == []


def test_a_broker_that_is_away_is_waited_for(context, opened, steps, monkeypatch):
    # The installation's address answers nothing.
    monkeypatch.setattr(broker, "TIMEOUT_MILLISECONDS", 300)
    opened()
    assert CatchUp(task_id="catch_up").poke(context) is False
    assert steps("catch_up") == [("running", None)]


@pytest.fixture
def switched(installation, opened, rewind_id):
    """Open a rewind, record its cut-over, and let its new live job be driven by this process, or not."""

    def make(*, driven, ago=timedelta(0), **asked):
        opened(**asked)
        with writing(installation.registry_url) as connection:
            rewinds.fix(connection, rewind_id, "cut_over", {"epoch": 2})
            connection.exec_driver_sql("UPDATE facts SET at = ?", (str(now() - ago),))
            streams.wish(connection, "visits-g2", streams.GENERATION, streams.RUN)
            if driven:
                leases.take(connection, "visits-g2", leases.this_driver())

    return make


@pytest.mark.parametrize(("seconds", "driven", "over"), [(59, True, False), (61, True, True), (61, False, False)])
def test_observe_lasts_its_period_and_until_the_new_job_is_well(
    context, switched, steps, installation, rewind_id, seconds, driven, over
):
    switched(driven=driven, ago=timedelta(seconds=seconds), observe_seconds=60)
    assert Observe(task_id="observe").poke(context) is over
    with writing(installation.registry_url) as connection:
        assert rewinds.read(connection, rewind_id).state == ("finished" if over else "active")
    assert [state for state, _ in steps("observe")] == ["done" if over else "running"]


def test_observe_ends_when_a_person_says_so(context, switched, installation, rewind_id):
    switched(driven=False, observe_seconds=3_600)
    with writing(installation.registry_url) as connection:
        rewinds.fix(connection, rewind_id, "finish_now", {"by": "ada"})
    assert Observe(task_id="observe").poke(context) is True


def test_observe_without_a_cut_over_on_record_fails_whatever_the_tasks_say(context, opened):
    opened()
    with pytest.raises(AirflowFailException, match="has no cut-over on record"):
        Observe(task_id="observe").poke(context)


def test_observe_of_a_rewind_that_was_ended_elsewhere_is_over(context, switched, installation, rewind_id, steps):
    switched(driven=True)
    with writing(installation.registry_url) as connection:
        rewinds.close(connection, rewind_id, "aborted")
    assert Observe(task_id="observe").poke(context) is True
    assert steps("observe") == []


def test_observe_of_a_rewind_that_was_rolled_back_is_red(context, switched, installation, rewind_id):
    switched(driven=True)
    with writing(installation.registry_url) as connection:
        rewinds.close(connection, rewind_id, "rolled_back")
    with pytest.raises(AirflowFailException, match=f"rewind {rewind_id} was rolled back"):
        Observe(task_id="observe").poke(context)


@pytest.fixture
def compared(installation, rewind_id, monkeypatch):
    """Both jobs stand at 10 and go on; a comparison that is submitted finds what is given to it.

    Returns how many were submitted: `compared({"changed": 3})`.
    """
    submits = []

    def make(differences, up_to=5):
        with writing(installation.registry_url) as connection:
            body = {"epoch": 2, "frontier": observation.to_json(Frontier({0: up_to}))}
            connection.execute(update(schema.facts).where(schema.facts.c.name == "cut_over").values(value=body))
            for job in ("visits-g1", "visits-g2"):
                progress.record(connection, job, 1, Batch(1, {0: 0}, {0: 10}, 10, now()))

        def submit(operator, context):
            assert (operator.job, run.rewind_id(context)) == ("recheck", rewind_id)
            submits.append(operator.job)
            with writing(installation.registry_url) as connection:
                after = now() - rewinds.fact_at(connection, rewind_id, "cut_over")
                counts = {"rows": 5, **differences}
                look = Look(after, Frontier({0: 10}), counts, differences, [{"class": "changed"}])
                observation.record(connection, rewind_id, len(submits), look)
                for job in ("visits-g1", "visits-g2"):
                    progress.record(connection, job, 1, Batch(2, {0: 10}, {0: 20}, 10, now()))

        monkeypatch.setattr(waits.StepSubmit, "execute", submit)
        return submits

    return make


@pytest.mark.parametrize(("seconds", "submitted"), [(59, 0), (61, 1), (121, 1)])
def test_observe_compares_when_it_is_due(context, switched, compared, seconds, submitted):
    switched(driven=True, ago=timedelta(seconds=seconds), observe_seconds=600)
    submits = compared({})
    assert Observe(task_id="observe").poke(context) is False
    assert Observe(task_id="observe").poke(context) is False
    assert len(submits) == submitted


def test_observe_compares_at_the_end_of_its_period_and_then_ends(context, switched, compared, steps):
    switched(driven=True, ago=timedelta(seconds=11), observe_seconds=10)
    submits = compared({"changed": 3})
    assert [Observe(task_id="observe").poke(context) for _ in range(2)] == [False, True]
    assert len(submits) == 1
    # Told, and nothing else was asked for.
    assert steps("observe") == [("done", {"live": "visits-g2", "differences": {"changed": 3}})]


def test_observe_compares_nothing_when_nothing_came(context, switched, compared):
    switched(driven=True, ago=timedelta(seconds=61), observe_seconds=60)
    submits = compared({}, up_to=10)
    assert Observe(task_id="observe").poke(context) is True
    assert submits == []


def test_observe_compares_nothing_when_nothing_was_to_be_compared(context, switched, compared):
    switched(driven=True, ago=timedelta(seconds=61), observe_seconds=600, compare="none", reason="dead")
    submits = compared({})
    assert not Observe(task_id="observe").poke(context)
    assert submits == []


def test_observe_compares_nothing_when_a_person_ends_it(context, switched, compared, installation, rewind_id):
    switched(driven=True, ago=timedelta(seconds=61), observe_seconds=600)
    submits = compared({})
    with writing(installation.registry_url) as connection:
        rewinds.fix(connection, rewind_id, "finish_now", True)
    assert Observe(task_id="observe").poke(context) is True
    assert submits == []


def test_observe_is_red_when_differences_appear_and_a_rollback_was_asked_for(
    context, switched, compared, installation, rewind_id, steps
):
    switched(driven=True, ago=timedelta(seconds=61), observe_seconds=600, on_difference="roll_back")
    compared({"changed": 3})
    assert Observe(task_id="observe").poke(context) is False
    with pytest.raises(AirflowFailException, match="DIFFERENCES: 3 changed: the rewind asks to roll back"):
        Observe(task_id="observe").poke(context)
    assert [state for state, _ in steps("observe")] == ["failed"]
    with writing(installation.registry_url) as connection:
        # It is the rollback that ends it: until then the standby is watched.
        assert rewinds.read(connection, rewind_id).state == "active"


@pytest.mark.parametrize(
    ("state", "over"),
    [("running", False), ("starting", False), ("waiting", False), ("draining", False), ("drained", True)],
)
def test_supervise_ends_when_drained(installation, opened, context, monkeypatch, state, over):
    opened()
    monkeypatch.setattr(supervise, "look", lambda _, owner: Sighting(state, f"{owner}: {state}"))
    context["params"] = {"owner": "visits-g1"}
    assert Supervise(task_id="supervise", pipeline="visits").poke(context) is over


@pytest.mark.shows("secure", id_of_another_stream="refused")
@pytest.mark.parametrize("owner", ["orders-g1", "visits-g9"])
def test_supervise_leaves_alone_what_is_no_job_of_its_pipeline(installation, opened, context, monkeypatch, owner):
    opened()
    with writing(installation.registry_url) as connection:
        config = {"source_topic": "carts", "output_topic": "orders_out"}
        made = Generation("orders-g1", "orders", "candidate", "t", "b", {"config": config}, {0: 0}, None, "out", "dead")
        generations.create(connection, made, None)
    looked = []
    monkeypatch.setattr(supervise, "look", lambda *asked: looked.append(asked))
    context["params"] = {"owner": owner}
    with pytest.raises(AirflowFailException, match=f"owner: '{owner}' is no job of visits"):
        Supervise(task_id="supervise", pipeline="visits").poke(context)
    assert looked == []


def test_supervise_fails_on_quarantine_with_the_cause(installation, context, monkeypatch):
    monkeypatch.setattr(supervise, "look", lambda *_: Sighting("quarantined", "quarantined after 5 failures; boom"))
    with pytest.raises(AirflowFailException, match="quarantined after 5 failures; boom"):
        Supervise(task_id="supervise", owner="mirror-clicks").poke(context)


def test_supervise_looks_again_when_the_registry_is_away(installation, context, monkeypatch):
    def away(*_):
        raise RetryError("registry is locked")

    monkeypatch.setattr(supervise, "look", away)
    assert Supervise(task_id="supervise", owner="mirror-clicks").poke(context) is False


def test_supervise_fails_at_once_on_a_changed_bundle(installation, context, monkeypatch):
    def changed(*_):
        raise IntegrityError("bundle was changed")

    monkeypatch.setattr(supervise, "look", changed)
    with pytest.raises(AirflowFailException, match="bundle was changed"):
        Supervise(task_id="supervise", owner="mirror-clicks").poke(context)


@pytest.mark.parametrize("params", [{}, {"owner": None}])
def test_supervise_without_an_owner_means_the_live_job(installation, opened, context, monkeypatch, params):
    opened()
    looked = []
    monkeypatch.setattr(supervise, "look", lambda _, o: looked.append(o) or Sighting("drained", ""))
    context["params"] = params
    assert Supervise(task_id="supervise", pipeline="visits").poke(context) is True
    assert looked == ["visits-g1"]


def test_a_look_costs_no_question_to_kafka_but_once_a_minute(installation, opened, monkeypatch):
    opened()
    asked = []
    seen = Topic("clicks", "id", {0: 0}, {0: 7}, written={0: 9})
    monkeypatch.setattr(sights, "_described", lambda *_: asked.append(1) or seen)

    class Clock(datetime):
        second_now = 0

        @classmethod
        def now(cls, zone=None):
            return datetime(2025, 9, 4, 7, 0, cls.second_now, tzinfo=zone)

    monkeypatch.setattr(sights, "datetime", Clock)
    assert sights.of_stream(installation, "visits-g1") == (
        'at {"clicks":{"0":0}}, 9 behind Kafka\'s end; '
        "partition 0 is held back by an open transaction: readable to 7, written to 9"
    )
    Clock.second_now = sights.LAG_SECONDS
    assert sights.of_stream(installation, "visits-g1") == 'at {"clicks":{"0":0}}'
    assert asked == [1]
    assert timedelta(seconds=sights.LAG_SECONDS) >= waits.LOOK_EVERY * 2
