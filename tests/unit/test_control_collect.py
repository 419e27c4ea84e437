"""Collection takes exactly what the manifest of an ended generation lists, by name and id."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from rewind.core import lifecycle
from rewind.core.errors import LeaseHeldError, RefusedError, RetryError
from rewind.core.planning.plan import Plan, Request, sealed
from rewind.registry import generations, leases, manifest, rewinds, schema, streams
from rewind.registry.database import now, writing
from rewind.runtime import collect
from rewind.steps.lifecycle import collect_garbage
from tests.support.fakes import FakeBroker, generation, installation

JOB = "visits_converter-g1"
OUTPUT, DEAD = "visits_converted-g1", "visits_converted-g1-dead"


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def broker(monkeypatch):
    """A broker with the topics of two generations, and a source that is nobody's."""
    made = FakeBroker()
    for name in ("visits", OUTPUT, DEAD, "visits_converted-g2"):
        made.make(name)
    made.commit(JOB, "visits", {0: 5})
    made.commit("visits_converter-g2", "visits", {0: 9})
    monkeypatch.setattr(collect, "Broker", lambda settings: made)
    return made


@pytest.fixture
def folder(settings):
    """The folder of the generation, with a link in it that leads to live's checkpoint."""
    live = settings.generations / "visits_converter-g2" / "checkpoint"
    live.mkdir(parents=True)
    (live / "offsets").write_text("live's")
    made = settings.generations / JOB
    (made / "checkpoint").mkdir(parents=True)
    (made / "checkpoint" / "link").symlink_to(live)
    return made


def owned(settings, broker, state=lifecycle.RETIRED):
    """Record a generation and what it owns: two topics with their ids, its group, its folder."""
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(state=state), None)
        for kind, name, resource_id in (
            (manifest.TOPIC, OUTPUT, broker.topic(OUTPUT).id),
            (manifest.TOPIC, DEAD, broker.topic(DEAD).id),
            (manifest.GROUP, JOB, None),
            (manifest.FOLDER, str(settings.generations / JOB), None),
        ):
            manifest.name(connection, JOB, kind, name)
            manifest.made(connection, JOB, kind, name, resource_id)


def state(settings):
    with writing(settings.registry_url) as connection:
        return generations.read(connection, JOB).state


def ledger(settings):
    with writing(settings.registry_url) as connection:
        return [(d.kind, Path(d.name).name, d.result) for d in manifest.ledger(connection, JOB)]


def change_entry(settings, entry, **values):
    with writing(settings.registry_url) as connection:
        table = schema.manifest
        connection.execute(update(table).where(table.c.name == entry).values(**values))


ALL = [("folder", JOB, "deleted"), ("group", JOB, "deleted"), ("topic", OUTPUT, "deleted"), ("topic", DEAD, "deleted")]


@pytest.mark.parametrize("ended", [lifecycle.RETIRED, lifecycle.ABORTED, lifecycle.MERGED])
def test_what_is_listed_goes_and_nothing_else(settings, broker, folder, ended):
    owned(settings, broker, ended)
    lines = collect.collect(settings, JOB)

    assert [(line["kind"], Path(line["name"]).name, line["result"]) for line in lines] == ALL
    assert (state(settings), ledger(settings)) == ("collected", ALL)
    assert broker.topics() == ["visits", "visits_converted-g2"]
    assert broker.positions == {"visits_converter-g2": {"visits": {0: 9}}}
    assert not folder.exists()
    assert (settings.generations / "visits_converter-g2" / "checkpoint" / "offsets").read_text() == "live's"


def test_collecting_again_finds_nothing_and_succeeds(settings, broker, folder):
    """Case C28 d."""
    owned(settings, broker)
    collect.collect(settings, JOB)
    broker.make(OUTPUT)
    assert collect.collect(settings, JOB) == []
    assert (OUTPUT in broker.topics(), ledger(settings)) == (True, ALL)


def test_what_is_gone_already_is_absent(settings, broker, folder):
    owned(settings, broker)
    broker.delete_topic(DEAD, broker.topic(DEAD).id)
    broker.delete_group(JOB)
    collect.shutil.rmtree(folder)
    collect.collect(settings, JOB)
    assert [result for *_, result in ledger(settings)] == ["absent", "absent", "deleted", "absent"]
    assert state(settings) == "collected"


@pytest.mark.parametrize("there", [lifecycle.LIVE, lifecycle.CANDIDATE, lifecycle.STANDBY, lifecycle.STAGING])
def test_what_is_not_over_is_left_alone(settings, broker, folder, there):
    owned(settings, broker, there)
    with pytest.raises(RefusedError, match=f"{JOB} is {there}"):
        collect.collect(settings, JOB)
    assert (state(settings), ledger(settings), folder.exists()) == (there, [], True)
    assert {OUTPUT, DEAD} < set(broker.topics())


def test_a_generation_with_a_living_driver_is_left_alone(settings, broker, folder):
    owned(settings, broker)
    with writing(settings.registry_url) as connection:
        token = leases.take(connection, JOB, leases.this_driver())
    with pytest.raises(LeaseHeldError, match=f"{JOB} has a living driver"):
        collect.collect(settings, JOB)
    assert (ledger(settings), folder.exists()) == ([], True)

    with writing(settings.registry_url) as connection:
        leases.give_back(connection, JOB, token)
    collect.collect(settings, JOB)


def test_a_topic_made_anew_is_refused_and_recorded_and_does_not_stop_the_rest(settings, broker, folder):
    owned(settings, broker)
    old = broker.topic(OUTPUT).id
    broker.make(OUTPUT)
    with pytest.raises(RefusedError, match=f"{JOB}: left alone: {OUTPUT}"):
        collect.collect(settings, JOB)

    assert ledger(settings) == [*ALL[:2], ("topic", OUTPUT, "refused"), ALL[3]]
    assert broker.topics() == ["visits", OUTPUT, "visits_converted-g2"]
    assert state(settings) == "retired"
    with writing(settings.registry_url) as connection:
        detail = manifest.ledger(connection, JOB)[2].detail
    assert f"has id {broker.topic(OUTPUT).id}, not {old}" in detail

    with pytest.raises(RefusedError):
        collect.collect(settings, JOB)
    assert len(ledger(settings)) == 5, "only what was refused is tried again"
    broker.delete_topic(OUTPUT, broker.topic(OUTPUT).id)
    collect.collect(settings, JOB)
    assert state(settings) == "collected"


def test_an_empty_topic_whose_maker_died_before_its_id_was_recorded_goes(settings, broker, folder):
    owned(settings, broker)
    change_entry(settings, DEAD, resource_id=None, state=manifest.NAMED)
    collect.collect(settings, JOB)
    assert DEAD not in broker.topics()
    assert ledger(settings)[-1] == ("topic", DEAD, "deleted")


def test_a_topic_with_records_that_was_named_but_never_made_by_us_may_be_anyones(settings, broker, folder):
    owned(settings, broker)
    change_entry(settings, DEAD, resource_id=None, state=manifest.NAMED)
    broker.send(DEAD, b"k", b"v")
    with pytest.raises(RefusedError, match=f"left alone: {DEAD}"):
        collect.collect(settings, JOB)
    assert DEAD in broker.topics()
    with writing(settings.registry_url) as connection:
        assert f"topic {DEAD} holds records, and its id is not recorded" in manifest.ledger(connection, JOB)[-1].detail

    broker.delete_topic(DEAD, broker.topic(DEAD).id)
    collect.collect(settings, JOB)
    assert ledger(settings)[-1] == ("topic", DEAD, "absent")


@pytest.mark.parametrize("hostile", ["../outside", "visits_converter-g2", ".", "/", "visits_converter-g1/../outside"])
def test_a_folder_that_is_not_the_generations_own_is_refused(settings, broker, folder, hostile):
    owned(settings, broker)
    outside = settings.generations.parent / "outside"
    outside.mkdir()
    change_entry(settings, str(folder), name=f"{settings.generations}/{hostile}")
    with pytest.raises(RefusedError, match="left alone"):
        collect.collect(settings, JOB)
    assert outside.is_dir()
    assert (settings.generations / "visits_converter-g2" / "checkpoint" / "offsets").is_file()
    assert folder.is_dir()


def test_a_folder_that_became_a_link_is_refused_and_what_it_leads_to_stays(settings, broker, folder):
    owned(settings, broker)
    collect.shutil.rmtree(folder)
    folder.symlink_to("visits_converter-g2")
    with pytest.raises(RefusedError, match="left alone"):
        collect.collect(settings, JOB)
    assert ledger(settings)[0] == ("folder", JOB, "refused")
    assert (settings.generations / "visits_converter-g2" / "checkpoint" / "offsets").is_file()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("topic", "visits"),
        ("topic", "visits_converted-g2"),
        ("topic", "visits_converted-g.*"),
        ("group", "visits_converter-g2"),
        # A path of the test's own: a guard that is missing must cost no more than that.
        ("folder", "{outside}"),
        ("table", "visits"),
    ],
)
def test_a_name_that_is_another_ones_is_refused_though_the_manifest_lists_it(settings, broker, folder, kind, name):
    outside = settings.home.parent / "outside"
    outside.mkdir()
    name = name.format(outside=outside)
    owned(settings, broker)
    with writing(settings.registry_url) as connection:
        manifest.name(connection, JOB, kind, name)
        found = broker.topic(name)
        manifest.made(connection, JOB, kind, name, found.id if found else None)
    with pytest.raises(RefusedError, match="left alone"):
        collect.collect(settings, JOB)
    assert broker.topics() == ["visits", "visits_converted-g2"]
    assert broker.positions == {"visits_converter-g2": {"visits": {0: 9}}}
    assert outside.is_dir()
    assert sorted(result for _, _, result in ledger(settings)) == [*["deleted"] * 4, "refused"]


@pytest.mark.parametrize("name", ["{outside}", "", "{generations}/.."])
def test_what_is_deleted_lies_in_the_folder_of_generations_even_without_the_first_guard(
    settings, broker, folder, monkeypatch, name
):
    outside = settings.home.parent / "outside"
    outside.mkdir()
    owned(settings, broker)
    change_entry(settings, str(folder), name=name.format(outside=outside, generations=settings.generations))
    monkeypatch.setattr(collect, "_check_own", lambda *_: None)
    with pytest.raises(RefusedError, match="left alone"):
        collect.collect(settings, JOB)
    assert outside.is_dir()
    assert (settings.generations / "visits_converter-g2").is_dir()


def test_all_is_withdrawn_before_the_first_thing_is_deleted(settings, broker, folder, monkeypatch):
    owned(settings, broker)
    monkeypatch.setattr(collect, "_gone", lambda *_: (_ for _ in ()).throw(RetryError("away")))
    with pytest.raises(RetryError):
        collect.collect(settings, JOB)
    with writing(settings.registry_url) as connection:
        first, *others = manifest.read(connection, JOB)
    assert first.state == manifest.GOING
    assert {entry.state for entry in others} == {manifest.WITHDRAWN}
    monkeypatch.undo()
    monkeypatch.setattr(collect, "Broker", lambda settings: broker)
    collect.collect(settings, JOB)
    assert ledger(settings) == ALL


def test_what_an_interrupted_attempt_has_deleted_stands_in_the_ledger_as_deleted(settings, broker, folder, monkeypatch):
    owned(settings, broker)
    gone = collect._gone

    def crash(settings, entry):
        if gone(settings, entry) == "deleted":
            raise RetryError("killed before it was recorded")
        return "absent"

    monkeypatch.setattr(collect, "_gone", crash)
    for _ in ALL:
        with pytest.raises(RetryError):
            collect.collect(settings, JOB)
    collect.collect(settings, JOB)
    assert ledger(settings) == ALL


def test_what_looks_like_a_generations_and_is_in_no_manifest_is_told_and_left(settings, broker, folder, caplog):
    owned(settings, broker)
    for name in ("visits_converted-g7", "visits_converted-r1-dead", "visits_converted-g1x", "visits_converted"):
        broker.make(name)
    strange = str(settings.generations / "visits_converter-g2")
    left = ["visits_converted-g2", "visits_converted-g7", "visits_converted-r1-dead", strange]
    assert collect.unlisted(settings) == left
    collect_garbage.run(settings, dry_run=False)
    assert [r.getMessage().rpartition(": ")[2] for r in caplog.records if r.levelname == "WARNING"] == left
    assert collect.unlisted(settings) == left


def test_a_broker_that_is_away_leaves_the_rest_for_the_next_time(settings, broker, folder, monkeypatch):
    owned(settings, broker)
    monkeypatch.setattr(broker, "delete_topic", lambda *_: (_ for _ in ()).throw(RetryError("away")))
    with pytest.raises(RetryError):
        collect.collect(settings, JOB)
    assert (state(settings), ledger(settings)) == ("retired", ALL[:2])
    monkeypatch.undo()
    monkeypatch.setattr(collect, "Broker", lambda settings: broker)
    collect.collect(settings, JOB)
    assert (state(settings), ledger(settings)) == ("collected", ALL)


# --- the grace period


def stand_by(settings, broker, grace):
    owned(settings, broker, lifecycle.STANDBY)
    with writing(settings.registry_url) as connection:
        generations.set_grace(connection, JOB, now() + grace)
        streams.wish(connection, JOB, streams.GENERATION, streams.RUN)


def watch(settings):
    """Have an active rewind that replaces the generation."""
    made = Plan(
        kind="rewind",
        request=Request("visits_converter"),
        job_id="visits_converter-g2",
        live_job_id=JOB,
        epoch=1,
        topic="visits",
        topic_id="T",
        start={},
        end={},
        mirror_version=0,
        records=0,
        bytes=0,
        chunks=0,
        estimate_seconds=0.0,
        differences=(),
        config={},
        bundle="b",
        output_schema="",
        output_topic="o",
        dead_letter_topic="d",
    )
    with writing(settings.registry_url) as connection:
        rewinds.open_rewind(connection, "rw-1", sealed(made))


PAST, FUTURE = timedelta(seconds=-1), timedelta(hours=1)


def test_before_its_grace_is_over_a_standby_is_left_alone_and_runs(settings, broker, folder):
    stand_by(settings, broker, FUTURE)
    with pytest.raises(RefusedError, match=f"{JOB} is standby until"):
        collect.retire_and_collect(settings, JOB)
    with writing(settings.registry_url) as connection:
        assert streams.needed(connection, JOB).wish == streams.RUN
    assert (state(settings), ledger(settings)) == ("standby", [])


def test_while_the_switch_is_watched_a_standby_is_kept_whatever_the_clock_says(settings, broker, folder):
    stand_by(settings, broker, PAST)
    watch(settings)
    with pytest.raises(RefusedError, match=f"{JOB} is standby until"):
        collect.retire_and_collect(settings, JOB)
    with writing(settings.registry_url) as connection:
        rewinds.close(connection, "rw-1", lifecycle.FINISHED)
    collect.retire_and_collect(settings, JOB)
    assert state(settings) == "collected"


def test_a_standby_without_grace_is_left_alone(settings, broker, folder):
    owned(settings, broker, lifecycle.STANDBY)
    with pytest.raises(RefusedError, match=f"{JOB} is standby until None"):
        collect.retire_and_collect(settings, JOB)


def test_after_its_grace_a_standby_is_drained_retired_and_collected(settings, broker, folder):
    stand_by(settings, broker, PAST)
    collect.retire_and_collect(settings, JOB)
    with writing(settings.registry_url) as connection:
        assert streams.needed(connection, JOB).wish == streams.DRAIN
    assert (state(settings), ledger(settings)) == ("collected", ALL)


def test_a_standby_whose_driver_does_not_end_is_not_retired(settings, broker, folder, monkeypatch):
    stand_by(settings, broker, PAST)

    def lives(settings, job_id):
        raise RetryError("it lives on")

    monkeypatch.setattr(collect.supervise, "end", lives)
    with pytest.raises(RetryError):
        collect.retire_and_collect(settings, JOB)
    assert (state(settings), ledger(settings)) == ("standby", [])


def test_a_rollback_while_the_standby_drains_saves_it(settings, broker, folder, monkeypatch):
    stand_by(settings, broker, PAST)

    def rolled_back(settings, job_id):
        with writing(settings.registry_url) as connection:
            generations.move(connection, job_id, lifecycle.LIVE)

    monkeypatch.setattr(collect.supervise, "end", rolled_back)
    with pytest.raises(RefusedError, match=f"{JOB} is live and cannot become retired"):
        collect.retire_and_collect(settings, JOB)
    assert (state(settings), ledger(settings), folder.exists()) == ("live", [], True)


@pytest.mark.parametrize("there", [lifecycle.LIVE, lifecycle.CANDIDATE])
def test_what_lives_is_neither_retired_nor_collected(settings, broker, folder, there):
    owned(settings, broker, there)
    with pytest.raises(RefusedError, match=f"{JOB} is {there}"):
        collect.retire_and_collect(settings, JOB)
    assert (state(settings), ledger(settings)) == (there, [])


def test_what_is_due_and_when(settings, broker, folder):
    assert collect.due(settings) == []
    stand_by(settings, broker, FUTURE)
    with writing(settings.registry_url) as connection:
        until = generations.grace_until(connection, JOB)
        for number, ended in (
            (2, lifecycle.LIVE),
            (3, lifecycle.ABORTED),
            (4, lifecycle.COLLECTED),
            (5, lifecycle.CANDIDATE),
        ):
            generations.create(connection, generation(number=number, state=ended), None)
    owns = (str(folder), JOB, OUTPUT, DEAD)

    assert [(d.job_id, d.state, d.at, d.now, d.owns) for d in collect.due(settings)] == [
        (JOB, "standby", until, False, owns),
        ("visits_converter-g3", "aborted", None, True, ()),
    ]
    with writing(settings.registry_url) as connection:
        generations.set_grace(connection, JOB, now())
    assert collect.due(settings)[0].now
    watch(settings)
    assert not collect.due(settings)[0].now
    assert collect.due(settings)[0].told().startswith(f"{JOB} (standby) goes at ")


@pytest.mark.parametrize("how", ["validate failed", "validate was skipped", "cut_over marked", "the run timed out"])
def test_c10_without_a_stored_cut_over_nothing_is_collected_whatever_the_tasks_say(settings, broker, folder, how):
    owned(settings, broker, lifecycle.LIVE)
    watch(settings)
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), "rw-1")
        for step, ended in (("validate", "failed"), ("cut_over", "done")):
            if how.startswith(step) and "skipped" not in how:
                attempt = rewinds.begin_step(connection, "rw-1", step)
                rewinds.end_step(connection, "rw-1", step, attempt, ended, {})
    collect_garbage.run(settings, dry_run=False)
    for job in (JOB, "visits_converter-g2"):
        with pytest.raises(RefusedError, match="Only what is over is collected"):
            collect.retire_and_collect(settings, job)
    assert (state(settings), ledger(settings)) == ("live", [])
    assert {OUTPUT, DEAD} <= set(broker.topics())


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_an_hour_off_ends_no_grace(settings, broker, monkeypatch, hours):
    owned(settings, broker, lifecycle.STANDBY)
    with writing(settings.registry_url) as connection:
        streams.wish(connection, JOB, streams.GENERATION, streams.RUN)
        leases.take(connection, "visits_converter-g2", leases.this_driver())
        generations.set_grace(connection, JOB, now() - timedelta(hours=2))
    jumped = now() + timedelta(hours=hours)
    monkeypatch.setattr(collect, "now", lambda: jumped)
    with pytest.raises(RetryError, match=r"clock: it is .* what every stream wrote last\. Set the clocks right"):
        collect.retire_and_collect(settings, JOB)
    with writing(settings.registry_url) as connection:
        assert generations.read(connection, JOB).state == lifecycle.STANDBY
        assert streams.needed(connection, JOB).wish == streams.RUN
