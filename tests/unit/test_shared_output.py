"""A shared output: what a plan refuses because of it, who may publish into it, and where readers find it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

import rewind
from rewind.control import collect, generations, leases, publications, shared_outputs, streams
from rewind.control.broker import Broker
from rewind.control.database import transaction
from rewind.control.publications import Counts
from rewind.core import lifecycle, names, sharing
from rewind.core.errors import LeaseLostError, RefusedError, RetryError
from rewind.core.plan import explain
from tests.fakes import PIPELINE, generation, installation, plan

NAME, OLD, NEW = PIPELINE.name, f"{PIPELINE.name}-g1", f"{PIPELINE.name}-g2"
SHARED = replace(PIPELINE, stateful=True, output_key=("a",), shared=True)
OUTPUT = names.shared_output(SHARED.output_topic)
HOUR = timedelta(hours=1)


# --- what a plan refuses


def refusal(pipeline=SHARED, live=SHARED, kind="rewind", into="live", schema="a STRING", there=(OUTPUT,)):
    made = generation(live)
    made = replace(made, frozen={**made.frozen, "output_schema": "a STRING"})
    with pytest.raises(RefusedError) as raised:
        sharing.refuse(kind, into, pipeline, made, schema, there)
    return raised.value.field, raised.value.problem


def test_what_suits_a_shared_output_is_not_refused():
    for pipeline in (SHARED, PIPELINE, replace(SHARED, vanished="tombstone")):
        live = generation(SHARED if pipeline.shared else PIPELINE)
        sharing.refuse("rewind", "live", pipeline, live, "b STRING", [OUTPUT])
    sharing.refuse("repair", "beside", SHARED, generation(SHARED), "a STRING", [OUTPUT])


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
    with transaction(settings.registry_url) as connection:
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


# --- where it is


def test_readers_find_it_whichever_job_is_live(settings, registry):
    registry.commit()
    assert rewind.resolve(NAME, settings.registry_url).output_topic == OUTPUT
    with transaction(settings.registry_url) as connection:
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
