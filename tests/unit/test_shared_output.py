"""A shared output: what a plan refuses because of it, who may publish into it, and where readers find it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

import rewind
from rewind.core import lifecycle, names
from rewind.core.errors import LeaseLostError, RefusedError, RetryError
from rewind.core.model import Batch
from rewind.core.planning import shared_output
from rewind.core.planning.plan import explain
from rewind.core.planning.stages import SHAPES
from rewind.registry import (
    generations,
    leases,
    progress,
    publications,
    rewinds,
    schema,
    shared_outputs,
    streams,
)
from rewind.registry.database import now, writing
from rewind.registry.publications import Counts
from rewind.runtime import announce, collect, publishing
from rewind.runtime.kafka.broker import Broker
from rewind.steps.generation import allocate_shared
from rewind.steps.lifecycle import abort, cut_over, rollback
from tests.support.fakes import PIPELINE, FakeBroker, generation, installation, plan, topic

NAME, OLD, NEW = PIPELINE.name, f"{PIPELINE.name}-g1", f"{PIPELINE.name}-g2"
SHARED = replace(PIPELINE, stateful=True, output_key=("a",), shared=True)
OUTPUT = names.shared_output(SHARED.output_topic)
HOUR = timedelta(hours=1)


# --- what a plan refuses


def refusal(pipeline=SHARED, live=SHARED, kind="rewind", into="live", schema="a STRING", there=(OUTPUT,)):
    made = generation(live)
    made = replace(made, frozen={**made.frozen, "output_schema": "a STRING"})
    with pytest.raises(RefusedError) as raised:
        shared_output.refuse(SHAPES[kind], into, pipeline, made, schema, there)
    return raised.value.field, raised.value.problem


def test_what_suits_a_shared_output_is_not_refused():
    for pipeline in (SHARED, PIPELINE, replace(SHARED, vanished="tombstone")):
        live = generation(SHARED if pipeline.shared else PIPELINE)
        shared_output.refuse(SHAPES["rewind"], "live", pipeline, live, "b STRING", [OUTPUT])
    shared_output.refuse(SHAPES["repair"], "beside", SHARED, generation(SHARED), "a STRING", [OUTPUT])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"shared": False}, "output.shared"),
        ({"output_key": ("b",)}, "output.key"),
        ({"output_topic": "other"}, "output"),
        ({"output_format": "delta"}, "output"),
        ({"session_time_zone": "Asia/Tokyo"}, "session_time_zone"),
    ],
)
def test_what_makes_its_name_or_its_keys_may_not_change(change, field):
    found = refusal(replace(SHARED, **change))
    assert (found[0], "one shared output cannot hold both" in found[1]) == (field, True)


def test_it_cannot_come_with_a_rewind():
    assert refusal(SHARED, PIPELINE)[0] == "output.shared"


def test_a_shared_table_keeps_its_columns_and_a_topic_has_none():
    table = replace(SHARED, output_format="delta")
    found = refusal(table, table, schema="a STRING, b STRING")
    assert found == ("logic", "transform() gives a STRING, b STRING, and the shared table has a STRING")


def test_one_that_is_gone_and_a_repair_of_what_was_published():
    assert refusal(there=()) == ("output.shared", f"{OUTPUT} is gone")
    assert refusal(kind="repair")[0] == "repair_into"


@pytest.mark.parametrize(("vanished", "fate"), [("keep", "are kept"), ("tombstone", "get a tombstone")])
def test_a_plan_tells_what_becomes_of_keys_that_vanish(vanished, fate):
    config = replace(SHARED, vanished=vanished).frozen()
    assert any(OUTPUT in line and line.endswith(fate) for line in explain(plan(config=config)))
    assert not any("shared" in line for line in explain(plan()))


# --- who may publish


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def registry(settings):
    """g1 is live at epoch 1 and its driver has token 1; g2 is the candidate, its driver has token 1 too."""
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(SHARED, 1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, OLD)
        generations.create(connection, generation(SHARED, 2, state=lifecycle.CANDIDATE), "rw-1")
        for job in (OLD, NEW):
            streams.wish(connection, job, streams.GENERATION, streams.RUN)
            leases.take(connection, job, leases.this_driver())
        yield connection


def test_the_live_job_alone_publishes_and_each_batch_once(registry):
    assert publications.begin(registry, NAME, NEW, 1, 7) is None
    begun = publications.begin(registry, NAME, OLD, 1, 7)
    assert begun is not None
    assert (begun.epoch, begun.job_id, begun.batch) == (1, OLD, None)
    publications.record(registry, begun, 1, 7, {0: 5}, {0: 4}, Counts(written=3, stale=1))
    assert publications.begin(registry, NAME, OLD, 1, 7) is None
    again = publications.begin(registry, NAME, OLD, 1, 9)
    assert again is not None
    assert (again.batch, again.staged, again.shared) == (7, {0: 5}, {0: 4})
    publications.record(registry, again, 1, 9, {0: 6}, {0: 5}, Counts(written=2, vanished=1))
    found = publications.find(registry, NAME, 1)
    assert found is not None
    assert found.told() == {"epoch": 1, "batch": 9, "written": 5, "repeated": 0, "stale": 1, "vanished": 1}


def test_a_driver_that_lost_its_token_publishes_nothing(registry):
    with pytest.raises(LeaseLostError):
        publications.begin(registry, NAME, OLD, 0, 7)
    begun = publications.begin(registry, NAME, OLD, 1, 7)
    with pytest.raises(LeaseLostError):
        publications.record(registry, begun, 0, 7, {}, {}, Counts())


def test_the_pointer_waits_for_the_drivers_answer(registry):
    publications.hold(registry, NAME, 1, OLD, "rw-1")
    with pytest.raises(RetryError, match=f"{OLD} has not stopped publishing yet"):
        publications.check_stopped(registry, NAME, 1, "rw-1")
    assert publications.begin(registry, NAME, OLD, 1, 7) is None
    publications.check_stopped(registry, NAME, 1, "rw-1")
    # Asked again, as by a step that is repeated, it has still stopped.
    publications.hold(registry, NAME, 1, OLD, "rw-1")
    publications.check_stopped(registry, NAME, 1, "rw-1")


def test_a_driver_that_is_dead_needs_no_answer(registry):
    leases.give_back(registry, OLD, 1)
    publications.hold(registry, NAME, 1, OLD, "rw-1")
    publications.check_stopped(registry, NAME, 1, "rw-1")


def test_publishing_goes_on_when_the_switch_fails(registry):
    publications.hold(registry, NAME, 1, OLD, "rw-1")
    assert publications.begin(registry, NAME, OLD, 1, 7) is None
    publications.release(registry, NAME, "another")
    assert publications.begin(registry, NAME, OLD, 1, 7) is None
    publications.release(registry, NAME, "rw-1")
    with pytest.raises(RetryError, match="is not held for rw-1"):
        publications.check_stopped(registry, NAME, 1, "rw-1")
    assert publications.begin(registry, NAME, OLD, 1, 7) is not None


def test_after_the_switch_the_new_job_publishes_at_an_epoch_of_its_own(registry):
    begun = publications.begin(registry, NAME, OLD, 1, 7)
    publications.record(registry, begun, 1, 7, {}, {}, Counts(written=3))
    publications.hold(registry, NAME, 1, OLD, "rw-1")
    generations.switch(registry, NAME, OLD, NEW, 1, HOUR)
    assert publications.begin(registry, NAME, OLD, 1, 8) is None
    begun = publications.begin(registry, NAME, NEW, 1, 2)
    assert begun is not None
    assert (begun.epoch, begun.batch) == (2, None)


# --- the pointer moves


@pytest.fixture
def switched(settings, registry, monkeypatch):
    """The same after a cut-over to g2, at offset 10 like g1, which stands by; g2 has published at epoch 2."""
    begun = publications.begin(registry, NAME, OLD, 1, 7)
    publications.record(registry, begun, 1, 7, {}, {}, Counts(written=3))
    generations.switch(registry, NAME, OLD, NEW, 1, HOUR)
    for job in (OLD, NEW):
        progress.record(registry, job, 1, Batch(10, {0: 0, 1: 0}, {0: 10, 1: 10}, 10, now()))
    begun = publications.begin(registry, NAME, NEW, 1, 10)
    publications.record(registry, begun, 1, 10, {}, {}, Counts(written=3))
    registry.commit()
    monkeypatch.setattr(announce, "publish", lambda settings, pipeline, epoch: None)
    monkeypatch.setattr(publishing, "STOP_SECONDS", 0.0)
    monkeypatch.setattr(publishing, "MERGE_SECONDS", 0.0)


def roll_back(settings):
    rollback.run(settings, "rb-1", NAME, {"dry_run": False, "reason": "wrong"})


def publication(settings, epoch):
    with writing(settings.registry_url) as connection:
        return publications.find(connection, NAME, epoch)


def driver(settings, job, through):
    """Ask once, as a job's driver does, and publish if it may; return whether it did."""
    with writing(settings.registry_url) as connection:
        begun = publications.begin(connection, NAME, job, 1, through)
        if begun is not None:
            publications.record(connection, begun, 1, through, {}, {}, Counts(written=2, vanished=1))
    return begun is not None


def test_a_rollback_does_not_move_the_pointer_while_live_may_publish(settings, switched):
    with pytest.raises(RetryError, match=f"{NEW} has not stopped publishing yet"):
        roll_back(settings)
    assert publication(settings, 2).held_by is None
    assert driver(settings, NEW, 11)
    assert rewind.resolve(NAME, settings.registry_url).epoch == 2


def test_a_rollback_is_done_once_the_standby_has_merged(settings, switched, monkeypatch):
    # The driver of the live job is dead: it needs no answer.
    with writing(settings.registry_url) as connection:
        leases.give_back(connection, NEW, 1)
    with pytest.raises(RetryError, match=f"{OLD} has not merged into the shared output yet"):
        roll_back(settings)
    assert (rewind.resolve(NAME, settings.registry_url).job_id, driver(settings, OLD, 12)) == (OLD, True)
    roll_back(settings)
    with writing(settings.registry_url) as connection:
        (*_, step) = rewinds.steps_of(connection, "rb-1")
    assert step.evidence["published"] == {
        "epoch": 3,
        "batch": 12,
        "written": 2,
        "repeated": 0,
        "stale": 0,
        "vanished": 1,
    }


def test_the_compare_and_set_itself_looks_whether_publishing_has_stopped(settings, switched, monkeypatch):
    with writing(settings.registry_url) as connection:
        leases.give_back(connection, NEW, 1)

    def released_meanwhile(*_):
        with writing(settings.registry_url) as connection:
            publications.release(connection, NAME, "rb-1")

    monkeypatch.setattr(rollback, "_await_standby", released_meanwhile)
    with pytest.raises(RetryError, match="is not held for rb-1"):
        roll_back(settings)
    assert rewind.resolve(NAME, settings.registry_url).epoch == 2


def test_a_cut_over_that_is_tried_again_looks_where_live_is_now(settings, registry, monkeypatch):
    rewinds.open_rewind(registry, "rw-1", plan())
    # An attempt before this one froze live at 5, and failed; live has published more since.
    rewinds.fix(registry, "rw-1", "cut_over.live_positions", {"0": 5, "1": 5})
    for job, offset in ((OLD, 10), (NEW, 7)):
        progress.record(registry, job, 1, Batch(1, {0: 0, 1: 0}, {0: offset, 1: offset}, offset, now()))
    jobs = [generations.read(registry, job) for job in (OLD, NEW)]
    registry.commit()
    monkeypatch.setattr(cut_over, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(RetryError, match=f"{NEW} is at .* not past live's"):
        cut_over._prove_past(settings, cut_over.Switch("rw-1", plan(), *jobs))
    apart = [replace(job, frozen={"config": PIPELINE.frozen()}) for job in jobs]
    cut_over._prove_past(settings, cut_over.Switch("rw-1", plan(), *apart))


def test_an_abort_lets_live_go_on(settings, registry):
    rewinds.open_rewind(registry, "rw-1", plan())
    publications.hold(registry, NAME, 1, OLD, "rw-1")
    registry.commit()
    assert not driver(settings, OLD, 3)
    with writing(settings.registry_url) as connection:
        streams.wish(connection, NEW, streams.GENERATION, streams.DRAIN)
        leases.give_back(connection, NEW, 1)
        connection.execute(schema.streams.delete().where(schema.streams.c.owner == NEW))
    abort.run(settings, "rw-1", PIPELINE.name, "second thoughts")
    assert driver(settings, OLD, 3)


# --- where it is


def test_a_name_that_is_taken_is_refused_unless_it_is_the_pipelines_own(settings, registry, monkeypatch):
    registry.commit()
    monkeypatch.setattr(Broker, "topics", lambda self: [OUTPUT])
    with pytest.raises(RefusedError, match=f"{OUTPUT} exists already"):
        allocate_shared.refuse_leftover(settings, SHARED)
    with writing(settings.registry_url) as connection:
        shared_outputs.name(connection, NAME, "topic", OUTPUT)
    allocate_shared.refuse_leftover(settings, SHARED)
    with pytest.raises(RefusedError, match=f"{OUTPUT} exists already"):
        allocate_shared.refuse_leftover(settings, replace(SHARED, name="other"))


def test_it_is_made_once(settings, registry, monkeypatch):
    registry.commit()
    broker = FakeBroker()
    monkeypatch.setattr(allocate_shared, "Broker", lambda settings: broker)
    for _ in range(2):
        allocate_shared.make(settings, generation(SHARED), SHARED, topic({0: 0, 1: 0}, {0: 5, 1: 5}))
    made = broker.topic(OUTPUT)
    assert (made.config["cleanup.policy"], list(made.latest)) == ("compact", [0, 1])
    del broker.described[OUTPUT]
    # What was published into it is lost: to make it anew would hide that.
    allocate_shared.make(settings, generation(SHARED), SHARED, topic({0: 0, 1: 0}, {0: 5, 1: 5}))
    assert broker.topic(OUTPUT) is None


def test_readers_find_it_whichever_job_is_live(settings, registry):
    registry.commit()
    assert rewind.resolve(NAME, settings.registry_url).output_topic == OUTPUT
    with writing(settings.registry_url) as connection:
        generations.switch(connection, NAME, OLD, NEW, 1, HOUR)
    found = rewind.resolve(NAME, settings.registry_url)
    assert (found.job_id, found.output_topic) == (NEW, OUTPUT)
    assert found.dead_letter_topic == f"{SHARED.output_topic}-g2-dead"


def test_it_is_named_before_it_is_made_and_is_no_garbage(settings, registry, monkeypatch):
    shared_outputs.name(registry, NAME, "table", OUTPUT)
    shared_outputs.name(registry, NAME, "table", "another")
    assert shared_outputs.find(registry, NAME) == shared_outputs.SharedOutput(NAME, "table", OUTPUT, None)
    shared_outputs.made(registry, NAME, "id-1")
    assert shared_outputs.find(registry, NAME).resource_id == "id-1"
    registry.commit()
    for name in (OUTPUT, "stray"):
        (settings.tables / name).mkdir(parents=True)
    monkeypatch.setattr(Broker, "topics", lambda self: [OUTPUT])
    assert collect.unlisted(settings) == ["stray"]
