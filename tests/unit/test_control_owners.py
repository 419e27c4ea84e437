"""One owner a name: what is claimed, what is refused, and what an older registry brings along."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import delete, insert, select, update

from rewind.core import lifecycle
from rewind.core.errors import DeniedError, RefusedError, RetryError
from rewind.core.pipeline import Pipeline
from rewind.registry import database, generations, manifest, owners, schema, streams
from rewind.registry.database import writing
from rewind.runtime import collect, tables
from rewind.runtime.drivers import supervise
from rewind.steps.feed import feeding
from rewind.steps.generation import allocate, allocate_shared
from rewind.steps.lifecycle import collect_garbage, plan
from tests.scenarios.machine import Crash, World
from tests.support import fakes
from tests.support.fakes import PIPELINE, FakeBroker, generation, installation

FIRST = Pipeline("first", "events", "a STRING", "out")
SECOND = Pipeline("second", "events", "a STRING", "out")


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "home", FakeBroker(), {})
    with made.patched():
        made.broker.make("events", 2)
        yield made


def recorded(settings, pipeline, number=1, state=lifecycle.CANDIDATE, **changes):
    with writing(settings.registry_url) as connection:
        return generations.create(connection, generation(pipeline, number, state=state, **changes), None)


def rows(settings):
    table = schema.owners
    with writing(settings.registry_url) as connection:
        found = connection.execute(select(table.c.space, table.c.key, table.c.owner).order_by(*table.primary_key))
        return [tuple(row) for row in found]


def test_what_a_generation_owns_is_recorded_with_it(settings):
    shared = replace(PIPELINE, name="A.b", output_topic="Out", shared=True)
    recorded(settings, shared)
    assert rows(settings) == [
        ("base", "out", "pipeline A.b"),
        ("job", "a_b-g1", "generation A.b-g1"),
        ("job", "night-a_b", "pipeline A.b"),
        ("output", "out-g1", "generation A.b-g1"),
        ("output", "out-g1-dead", "generation A.b-g1"),
        ("output", "out-shared", "pipeline A.b"),
        ("pipeline", "a_b", "pipeline A.b"),
    ]


@pytest.mark.parametrize(
    ("second", "number", "field", "whose"),
    [
        (SECOND, 7, "output.topic", "'out' of pipeline second is 'out' of pipeline first already"),
        (replace(SECOND, output_topic="OUT"), 7, "output.topic", "'OUT' of pipeline second is 'out' of pipeline first"),
        (replace(FIRST, name="First", output_topic="o"), 7, "pipeline", "'First' of pipeline First is 'first'"),
    ],
)
def test_a_second_owner_is_refused_and_records_nothing(settings, second, number, field, whose):
    recorded(settings, FIRST)
    before = rows(settings)
    with pytest.raises(RefusedError) as raised:
        recorded(settings, second, number)
    assert (raised.value.field, whose in raised.value.problem) == (field, True)
    assert rows(settings) == before
    with writing(settings.registry_url) as connection:
        assert generations.find(connection, f"{second.name}-g{number}") is None


def wish_mirror(settings, topic):
    with writing(settings.registry_url) as connection:
        streams.wish(connection, f"mirror-{topic}", streams.MIRROR, streams.RUN)


def test_a_mirror_and_a_job_of_one_name_are_refused_whoever_comes_second(settings):
    wish_mirror(settings, "x-g1")
    with pytest.raises(RefusedError, match=r"'mirror-x-g1' of generation mirror-x-g1 is .* of mirror of x-g1 already"):
        recorded(settings, replace(PIPELINE, name="mirror-x"))
    recorded(settings, replace(PIPELINE, name="mirror-y"))
    with pytest.raises(RefusedError, match=r"'mirror-y-g1' of mirror of y-g1 is .* of generation mirror-y-g1 already"):
        wish_mirror(settings, "y-g1")
    with pytest.raises(RefusedError, match="'mirror-X-g1' of mirror of X-g1"):
        wish_mirror(settings, "X-g1")
    wish_mirror(settings, "x-g1")


def test_the_nights_of_a_pipeline_and_a_job_of_one_name_are_refused(settings):
    recorded(settings, replace(FIRST, name="x-g1"))
    with pytest.raises(RefusedError, match=r"'night-x-g1' of generation night-x-g1 is .* of pipeline x-g1 already"):
        recorded(settings, replace(FIRST, name="night-x", output_topic="other"))


def test_the_names_of_a_collected_job_are_free_again_but_for_its_own(settings):
    recorded(settings, FIRST, 1, lifecycle.RETIRED)
    recorded(settings, FIRST, 2, lifecycle.ABORTED)
    for job in ("first-g1", "first-g2"):
        with writing(settings.registry_url) as connection:
            generations.move(connection, job, lifecycle.COLLECTED)
            owners.release(connection, job)
        if job == "first-g1":
            with pytest.raises(RefusedError, match="'out' of pipeline second"):
                recorded(settings, SECOND)
    recorded(settings, SECOND)
    assert [row for row in rows(settings) if row[0] != "pipeline"] == [
        ("base", "out", "pipeline second"),
        ("job", "first-g1", "generation first-g1"),
        ("job", "first-g2", "generation first-g2"),
        ("job", "night-first", "pipeline first"),
        ("job", "night-second", "pipeline second"),
        ("job", "second-g1", "generation second-g1"),
        ("output", "out-g1", "generation second-g1"),
        ("output", "out-g1-dead", "generation second-g1"),
    ]


def test_a_plan_is_refused_before_it_is_stored(settings, monkeypatch):
    recorded(settings, SECOND)
    made = fakes.plan(config=FIRST.frozen(), job_id="first-g2", output_topic="out-g2", dead_letter_topic="out-g2-dead")
    monkeypatch.setattr(plan, "_made", lambda *_: made)
    with pytest.raises(RefusedError, match="'out' of pipeline first is 'out' of pipeline second already"):
        plan._plan(settings, "rw-1", "first", {})
    with writing(settings.registry_url) as connection:
        assert connection.execute(select(schema.plans)).all() == []


# --- a deploy that died, and a clear


def deploy(world, pipeline, at=""):
    source, made = world.broker.described["events"], generation(pipeline, state=lifecycle.CANDIDATE)
    world.crash_at = at
    try:
        known = allocate.record(world.settings, made, None)
        allocate.make(world.settings, known, world._bundle(None, "b"), source, source)
    finally:
        world.crash_at = ""


def contested_by_hand(world):
    """Let the second deploy record itself as an older release did, which knew no owners."""
    with writing(world.settings.registry_url) as connection:
        connection.execute(delete(schema.owners))


@pytest.mark.parametrize("at", ["after:generation.record", "after:manifest.name", "before:topic.create"])
def test_after_a_deploy_that_died_nobody_else_gets_its_names(world, at):
    with pytest.raises(Crash):
        deploy(world, FIRST, at)
    with pytest.raises(RefusedError, match="'out' of pipeline second is 'out' of pipeline first already"):
        deploy(world, SECOND)
    assert world.broker.topics() == ["events"]
    deploy(world, FIRST)
    assert world.broker.topics() == ["events", "out-g1", "out-g1-dead"]


def test_a_deploy_that_died_under_an_older_release_makes_nothing_of_what_is_anothers_by_now(world):
    with pytest.raises(Crash):
        deploy(world, FIRST, "after:manifest.name")
    contested_by_hand(world)
    deploy(world, SECOND)
    with pytest.raises(RefusedError, match="'out' of pipeline first is 'out' of pipeline second already"):
        deploy(world, FIRST)
    with writing(world.settings.registry_url) as connection:
        assert {entry.state for entry in manifest.read(connection, "first-g1")} == {manifest.NAMED}


def test_a_topic_of_a_stranger_that_came_while_the_deploy_was_dead_is_not_taken(world):
    with pytest.raises(Crash):
        deploy(world, FIRST, "before:topic.create")
    theirs = world.broker.make("out-g1")
    world.broker.send("out-g1", b"k", b"v")
    with pytest.raises(RefusedError, match="out-g1 holds records, and its id is not recorded"):
        deploy(world, FIRST)
    with writing(world.settings.registry_url) as connection:
        assert theirs.id not in {entry.resource_id for entry in manifest.read(connection, "first-g1")}


def test_a_topic_that_somebody_made_anew_is_not_taken(world):
    deploy(world, FIRST)
    world.broker.make("out-g1")
    with pytest.raises(RefusedError, match="out-g1 was recreated by somebody"):
        deploy(world, FIRST)


@pytest.mark.parametrize("leftover", ["OUT-g1", "out-G1-dead"])
def test_a_topic_whose_name_differs_by_case_alone_is_a_leftover(world, leftover):
    world.broker.make(leftover)
    with pytest.raises(RefusedError, match=f"collides with '{leftover}'"):
        deploy(world, FIRST)


def test_a_folder_whose_name_differs_by_case_alone_and_a_group_in_use_are_leftovers(world):
    (world.settings.generations / "First-g1").mkdir(parents=True)
    with pytest.raises(RefusedError, match="'first-g1' collides with 'First-g1'"):
        deploy(world, FIRST)
    world.broker.commit("second-g1", "events", {0: 1})
    with pytest.raises(RefusedError, match="the consumer group second-g1 exists already"):
        deploy(world, SECOND)


def test_what_is_made_beside_a_collection_is_left_when_the_name_is_anothers_by_then(world, monkeypatch):
    create = world.broker.create_topic

    def overtaken(name, *others, **named):
        with writing(world.settings.registry_url) as connection:
            generations.move(connection, "first-g1", lifecycle.ABORTED)
        collect.collect(world.settings, "first-g1")
        monkeypatch.setattr(world.broker, "create_topic", create)
        deploy(world, SECOND)
        return create(name, *others, **named)

    monkeypatch.setattr(world.broker, "create_topic", overtaken)
    with pytest.raises(RefusedError, match="first-g1 was aborted while it was made"):
        deploy(world, FIRST)
    assert world.broker.topics() == ["events", "out-g1", "out-g1-dead"]


# --- links


@pytest.mark.parametrize("name", ["checkpoint", "feed"])
def test_a_checkpoint_or_feed_that_leads_to_another_jobs_is_refused(world, name):
    deploy(world, FIRST)
    deploy(world, replace(SECOND, output_topic="other"))
    folder = world.settings.generations
    place = {"checkpoint": supervise.checkpoint_folder, "feed": feeding.feed_path}[name]
    assert str(place(world.settings, "second-g1")) == str(folder / "second-g1" / name)
    (folder / "first-g1" / name).mkdir()
    (folder / "second-g1" / name).symlink_to(folder / "first-g1" / name)
    with pytest.raises(RefusedError, match=f"{name}: .* is a link"):
        place(world.settings, "second-g1")


# --- a shared output


def test_a_shared_output_takes_no_topic_of_a_stranger(world, monkeypatch):
    monkeypatch.setattr(allocate_shared, "Broker", lambda _: world.broker)
    shared = replace(FIRST, shared=True)
    made, source = recorded(world.settings, shared), world.broker.described["events"]
    world.broker.make("out-shared")
    allocate_shared.make(world.settings, made, shared, source)
    with writing(world.settings.registry_url) as connection:
        connection.execute(update(schema.shared_outputs).values(resource_id=None))
    world.broker.send("out-shared", b"k", b"v")
    with pytest.raises(RefusedError, match="out-shared holds records, and its id is not recorded"):
        allocate_shared.make(world.settings, made, shared, source)


# --- a collection


@pytest.fixture
def retired(world):
    """The first pipeline's job, made and retired."""
    deploy(world, FIRST)
    with writing(world.settings.registry_url) as connection:
        for state in (lifecycle.LIVE, lifecycle.STANDBY, lifecycle.RETIRED):
            generations.move(connection, "first-g1", state)
    return "first-g1"


def there(world):
    return world.broker.topics(), [path.name for path in world.settings.generations.iterdir()]


WHOLE = (["events", "out-g1", "out-g1-dead"], ["first-g1"])


def undeleted(world, job="first-g1"):
    with writing(world.settings.registry_url) as connection:
        return [e.name for e in manifest.read(connection, job) if e.state != manifest.DELETED]


@pytest.mark.parametrize("name", ["out-g1", "OUT-g1"])
def test_what_another_owner_lists_keeps_all_of_both(world, retired, name):
    recorded(world.settings, replace(SECOND, output_topic="other"))
    with writing(world.settings.registry_url) as connection:
        manifest.name(connection, "second-g1", manifest.TOPIC, name)
    with pytest.raises(RefusedError, match="belongs to generation first-g1 and to generation second-g1"):
        collect.collect(world.settings, retired)
    assert there(world) == WHOLE
    assert len(undeleted(world)) == 4
    with writing(world.settings.registry_url) as connection:
        assert {entry.state for entry in manifest.read(connection, retired)} == {manifest.MADE}
        assert manifest.ledger(connection, retired) == []


@pytest.mark.parametrize("error", [RetryError("away"), DeniedError("topic", "the broker denies Describe", "Grant it")])
def test_where_the_broker_does_not_tell_of_a_topic_nothing_is_deleted(world, retired, monkeypatch, error):
    def untold(name):
        raise error

    monkeypatch.setattr(world.broker, "topic", untold)
    with pytest.raises(type(error)):
        collect.collect(world.settings, retired)
    monkeypatch.undo()
    assert there(world) == WHOLE
    assert len(undeleted(world)) == 4
    with writing(world.settings.registry_url) as connection:
        assert manifest.ledger(connection, retired) == []


def test_where_the_disk_does_not_answer_nothing_is_deleted(world, retired):
    world.settings.data.rename(world.settings.home / "away")
    with pytest.raises(RetryError, match="is not there, so nothing is known of first-g1: is its disk mounted"):
        collect.collect(world.settings, retired)
    with pytest.raises(RetryError, match="is not there, and holds what is recorded: is its disk mounted"):
        deploy(world, replace(SECOND, output_topic="other"))
    (world.settings.home / "away").rename(world.settings.data)
    assert there(world) == WHOLE
    collect.collect(world.settings, retired)
    assert there(world) == (["events"], [])


def test_a_missing_right_to_delete_leaves_the_topic_listed(world, retired, monkeypatch):
    def denied(*_):
        raise DeniedError("topic", "the broker denies Delete on out-g1 to this user", "Grant it")

    monkeypatch.setattr(world.broker, "delete_topic", denied)
    with pytest.raises(DeniedError, match="denies Delete on out-g1"):
        collect.collect(world.settings, retired)
    assert undeleted(world) == ["out-g1", "out-g1-dead"]


def test_of_a_link_in_a_table_only_the_link_goes(settings, tmp_path):
    place, other = tables.path(settings, "out-g1"), tmp_path / "other"
    place.mkdir(parents=True)
    other.mkdir()
    (other / "kept").touch()
    (place / "link").symlink_to(other)
    tables.mark(settings, "out-g1", "id")
    assert tables.delete(settings, "out-g1", "id") is True
    assert (place.exists(), (other / "kept").exists()) == (False, True)


# --- what an older release left


def older(settings):
    """Make a registry of the release before as it could become: three pipelines that share names."""
    jobs = (
        (FIRST, 1, lifecycle.CANDIDATE, None),
        (SECOND, 1, lifecycle.LIVE, "T1"),
        (replace(FIRST, name="mirror-x", output_topic="o"), 1, lifecycle.LIVE, "T2"),
        (replace(FIRST, name="gone"), 1, lifecycle.COLLECTED, None),
    )
    with writing(settings.registry_url) as connection:
        for pipeline, number, state, topic_id in jobs:
            made = generation(pipeline, number, state=state)
            generations.create(connection, made, None)
            connection.execute(delete(schema.owners))
            if topic_id:
                manifest.name(connection, made.job_id, manifest.TOPIC, made.output_topic)
                manifest.made(connection, made.job_id, manifest.TOPIC, made.output_topic, topic_id)
        values = {"wish": streams.RUN, "starts": 0, "failures": 0, "kind": streams.MIRROR}
        connection.execute(insert(schema.streams).values(owner="mirror-x-g1", **values))
        schema.owners.drop(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0010'")


def test_a_registry_with_names_of_several_owners_migrates_and_tells_them(settings, monkeypatch, caplog):
    older(settings)
    database.upgrade(settings.registry_url)
    found = {(space, key): owner for space, key, owner in rows(settings)}
    # What lives comes first, though it was recorded later; what is collected keeps its id alone.
    assert found["base", "out"] == "pipeline second"
    assert found["output", "out-g1"] == "generation second-g1"
    assert found["job", "mirror-x-g1"] == "generation mirror-x-g1"
    assert found["job", "gone-g1"] == "generation gone-g1"
    both = "belongs to generation first-g1 and to generation second-g1"
    listed = (
        "out (base) belongs to pipeline first and to pipeline second",
        "mirror-x-g1 (job) belongs to generation mirror-x-g1 and to mirror of x-g1",
        f"out-g1 (output) {both}",
        f"out-g1-dead (output) {both}",
    )
    told = [f"{line}: nothing of that name is deleted" for line in listed]
    with writing(settings.registry_url) as connection:
        assert [each.told() for each in owners.contested(connection)] == told
    monkeypatch.setattr(collect, "Broker", lambda _: FakeBroker())
    collect_garbage.run(settings, dry_run=True)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == told
    # What streams already goes on.
    wish_mirror(settings, "x-g1")
