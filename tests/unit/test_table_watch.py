"""Output tables that somebody restored, emptied or rewrote: seen before a write id of theirs is believed."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rewind.adapters import table_watch
from rewind.adapters.sinks import DeltaSink
from rewind.adapters.table_watch import Watch
from rewind.core.errors import IntegrityError, QuarantineError, RetryError
from rewind.core.pipeline import DELTA
from rewind.core.table_changes import ADDED, CHANGED, REMOVED, RESTORED, Change, effective, fallen, told
from rewind.registry import shared_outputs
from rewind.registry.database import writing
from rewind.registry.mirrors import table_log
from rewind.runtime import tables
from rewind.steps.lifecycle import merge
from rewind.steps.streaming import publish
from rewind.steps.streaming.publish import Publisher
from tests.support.delta_files import Table, read_locally
from tests.support.fakes import PIPELINE, generation, installation

JOB = generation()
NAME, APP = JOB.output_topic, f"{JOB.job_id}-stream-q1"
SEED = int(os.environ.get("SEED", "20"))
SEQUENCES, STEPS = int(os.environ.get("SEQUENCES", "12")), 14


@pytest.fixture
def asked(monkeypatch):
    return read_locally(monkeypatch)


@pytest.fixture
def settings(tmp_path, asked):
    return installation(tmp_path / "home")


@pytest.fixture
def table(settings):
    return made(settings, NAME)


def made(settings, name):
    table = Table(tables.path(settings, name)).create()
    tables.mark(settings, name, "id")
    return table


def watch(settings):
    return table_watch.of_output(settings, JOB, NAME)


def problem(looking: Watch) -> str:
    try:
        looking.check(None)
    except QuarantineError as error:
        return str(error)
    return ""


# --- what each operation is


HARMLESS = ["optimize", "vacuum", "set_property", "add_column"]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_no_row_is_none_of_a_change(settings, table, name):
    table.write(APP, 0)
    getattr(table, name)()
    looking = watch(settings)
    looking.check(None)
    assert (looking.changes, looking.version) == ([], table.version)


def ours(number):
    return (f"{APP}:{number}:0", 0)


@pytest.mark.parametrize(
    ("act", "kind", "restored", "rows"),
    [
        (lambda t: t.restore(1), RESTORED, 1, None),
        (lambda t: t.restore_to_time(1), CHANGED, None, None),
        (lambda t: t.delete(ours(0)), REMOVED, None, 1),
        (lambda t: t.truncate(), CHANGED, None, None),
        (lambda t: t.update(ours(0)), CHANGED, None, None),
        (lambda t: t.merge(ours(0)), CHANGED, None, None),
        (lambda t: t.overwrite(), CHANGED, None, None),
        (lambda t: t.overwrite(moves=False), CHANGED, None, None),
        (lambda t: t.compact(), CHANGED, None, None),
        (lambda t: t.replace(), CHANGED, None, None),
        (lambda t: t.drop_column(), CHANGED, None, None),
    ],
)
def test_what_takes_rows_stops_the_writer_and_names_version_user_time_and_cure(
    settings, table, act, kind, restored, rows
):
    table.write(APP, 0)
    table.write(APP, 1)
    watch(settings).check(None)
    act(table)
    looking = watch(settings)
    text = problem(looking)
    (change,) = looking.changes
    assert (change.version, change.kind, change.restored, change.rows) == (3, kind, restored, rows)
    assert text.startswith(f"{NAME}: {change.operation}")
    assert "at version 3 by Spark at 2025-09-04T07:00:00Z" in text
    assert text.endswith("RESTORE it to version 2, or rewind the pipeline with same_code from what is lost")
    table.restore(2)
    watch(settings).check(None)


def test_rows_that_others_add_are_told_and_stop_nothing(settings, table, caplog):
    table.write(APP, 0)
    table.append()
    watch(settings).check(None)
    assert caplog.messages == [
        f"{NAME} was changed by somebody else: WRITE at version 2 by Spark at 2025-09-04T07:00:00Z"
    ]
    with writing(settings.registry_url) as connection:
        (change,) = table_log.changes(connection, NAME, "id")
    assert (change.kind, change.version) == (ADDED, 2)
    caplog.clear()
    watch(settings).check(None)
    assert caplog.messages == []


def test_rows_of_a_repair_are_ours_and_those_of_another_job_are_not(settings, table):
    table.write(f"{JOB.pipeline}-r3-merge", 0)
    table.write("other-g1-stream-q", 0)
    table.write(APP, 0, metadata="no JSON")
    looking = watch(settings)
    looking.check(None)
    assert [(change.version, change.kind) for change in looking.changes] == [(2, ADDED), (3, ADDED)]


def test_a_write_of_ours_that_a_restore_took_back_cannot_be_restored_beside_what_came_later(settings, table):
    table.write(APP, 0)
    table.write(APP, 1)
    table.restore(1)
    # Between the look and the commit.
    table.write(APP, 2)
    text = problem(watch(settings))
    assert "RESTORE to version 1 at version 3" in text
    assert text.endswith("to be there: rewind the pipeline with same_code from what is lost")


def test_a_restore_that_moves_nothing_is_none(settings, table):
    table.write(APP, 0)
    table.vacuum()
    table.restore(1)
    watch(settings).check(None)


def test_a_dropped_column_that_came_back_is_healed(settings, table):
    table.write(APP, 0)
    table.drop_column()
    assert "RESTORE it to version 1" in problem(watch(settings))
    table.restore(1)
    watch(settings).check(None)


# --- another table under the same path


@pytest.mark.parametrize("then", [0, 1, 5])
def test_a_table_that_was_made_anew_is_not_believed(settings, table, then):
    for number in range(3):
        table.write(APP, number)
    looking = watch(settings)
    looking.check(None)
    table.made_anew()
    for number in range(then):
        table.write(APP, number)
    for each in (looking, watch(settings)):
        assert "version 3 of its table is not the commit that was seen there" in problem(each)


def test_a_folder_that_was_put_back_from_a_copy_is_not_believed(settings, table):
    for number in range(3):
        table.write(APP, number)
    watch(settings).check(None)
    table.put_back(1)
    assert "its folder was put back from a copy" in problem(watch(settings))
    table.write("another", 1)
    table.write("another", 2)
    assert "its folder was put back from a copy" in problem(watch(settings))


@pytest.mark.parametrize("damage", [lambda body: body[: len(body) // 2], lambda body: b"\xff" + body])
def test_a_torn_commit_is_told(settings, table, damage):
    table.write(APP, 0)
    file = table.path / "_delta_log" / f"{1:020d}.json"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(IntegrityError, match="version 1 of a table's log is torn or changed"):
        watch(settings).check(None)


def test_commits_that_left_the_log_unseen_are_told(settings, table, caplog):
    for number in range(5):
        table.write(APP, number)
    watch(settings).check(None)
    for number in range(5, 9):
        table.write(APP, number)
    for version in range(8):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    looking = watch(settings)
    looking.check(None)
    assert looking.version == 9
    assert caplog.messages == [f"{NAME}: versions 6 to 7 left its log unseen"]


def test_a_table_of_another_id_is_looked_at_from_its_beginning(settings, table):
    table.write(APP, 0)
    table.truncate()
    assert problem(watch(settings))
    table.made_anew()
    tables.mark(settings, NAME, "id-2")
    watch(settings).check(None)


# --- what a look costs, and a registry that is away


def test_the_first_look_at_an_old_table_begins_near_its_end(settings, table, asked, monkeypatch):
    monkeypatch.setattr(table_watch, "FIRST_LOOK", 3)
    for number in range(6):
        table.write(APP, number)
    table.truncate()
    looking = watch(settings)
    asked.clear()
    looking.look(None)
    read = [path.rpartition("/")[2] for path in asked if "/" in path]
    assert read[0] == f"{table.version - 2:020d}.json"
    assert ([change.kind for change in looking.changes], looking.version) == ([CHANGED], table.version)


def test_a_look_reads_what_came_since_the_last_one_however_old_the_table_is(settings, table, asked):
    for number in range(300):
        table.write(APP, number)
    watch(settings).check(None)
    table.write(APP, 300)
    asked.clear()
    looking = watch(settings)
    looking.check(None)
    # The commit that was seen last, the one that came, and none after it.
    assert [path[-8:] for path in asked] == ["300.json", "301.json", "302.json"]
    asked.clear()
    looking.check(None)
    assert [path[-8:] for path in asked] == ["301.json", "302.json"]


def test_a_driver_goes_on_while_the_registry_is_away_and_keeps_what_it_saw(settings, table, monkeypatch):
    looking = watch(settings)
    table.write(APP, 0)
    looking.check(None)

    def away(*_):
        raise RetryError("away")

    with monkeypatch.context() as patched:
        patched.setattr(table_log, "record", away)
        table.append()
        looking.check(None)
        table.write(APP, 1)
        looking.check(None)
    table.write(APP, 2)
    looking.check(None)
    with writing(settings.registry_url) as connection:
        assert table_log.read(connection, NAME, "id").version == 4
        assert [change.version for change in table_log.changes(connection, NAME, "id")] == [2]


def test_an_older_look_takes_nothing_back(settings):
    newer, older = table_log.Sight(7, "b", "t", ("x",)), table_log.Sight(5, "a")
    changes = [Change(4, REMOVED, "DELETE", "me", 1, None, 3)]
    for sight in (newer, older):
        with writing(settings.registry_url) as connection:
            table_log.record(connection, NAME, "id", sight, changes)
    with writing(settings.registry_url) as connection:
        assert table_log.read(connection, NAME, "id") == newer
        assert table_log.changes(connection, NAME, "id") == changes
        assert table_log.read(connection, NAME, "other") is None


# --- who asks


@pytest.mark.parametrize("name", [NAME, JOB.dead_letter_topic])
def test_no_row_is_written_to_a_table_that_was_emptied(settings, monkeypatch, name):
    both = {each: made(settings, each) for each in (NAME, JOB.dead_letter_topic)}
    both[name].write(APP, 0)
    both[name].truncate()
    monkeypatch.setattr("rewind.adapters.delta_output.write", lambda *_: pytest.fail("written"))
    with pytest.raises(QuarantineError, match=f"^{name}: TRUNCATE at version 2"):
        DeltaSink(settings, JOB).write(SimpleNamespace(sparkSession=None), None)


@pytest.mark.parametrize("name", ["visits_converted-r1", JOB.output_topic, JOB.dead_letter_topic])
def test_no_repair_is_merged_from_or_into_a_table_that_was_emptied(settings, monkeypatch, name):
    repair = replace(
        JOB, job_id=f"{JOB.pipeline}-r1", output_topic="visits_converted-r1", dead_letter_topic="x-r1-dead"
    )
    for each in (repair, JOB):
        for one in (each.output_topic, each.dead_letter_topic):
            table = made(settings, one)
            table.write(f"{each.job_id}-backfill", 0)
            if one == name:
                table.truncate()
    monkeypatch.setattr("rewind.adapters.delta_output.as_topic", lambda *_: pytest.fail("read"))
    with pytest.raises(QuarantineError, match=f"^{name}: TRUNCATE"):
        merge._copy(None, settings, repair, JOB)


def test_nothing_is_published_from_or_into_a_table_that_was_emptied(settings, table, monkeypatch):
    table.write(APP, 0)
    table.truncate()
    publisher = object.__new__(Publisher)
    publisher._spark, publisher._settings, publisher._generation = None, settings, JOB
    publisher._guard, publisher._watches = SimpleNamespace(token=1), [watch(settings)]
    monkeypatch.setattr("rewind.registry.publications.begin", lambda *_: "begun")
    monkeypatch.setattr("rewind.adapters.staged.read", lambda *_: pytest.fail("read"))
    with pytest.raises(QuarantineError, match="TRUNCATE at version 2"):
        publisher.publish(1)


def test_a_publisher_watches_its_own_table_and_the_shared_one(settings):
    with writing(settings.registry_url) as connection:
        shared_outputs.name(connection, JOB.pipeline, "table", "visits_converted-shared")
    delta = replace(JOB, frozen={"config": replace(PIPELINE, output_format=DELTA).frozen()})
    assert [one._table.name for one in publish._watches(settings, delta)] == [NAME, "visits_converted-shared"]
    assert publish._watches(settings, JOB) == []


def test_a_shared_table_is_merged_into_by_version_and_by_us_alone(settings):
    name = "visits_converted-shared"
    table = made(settings, name)
    by_version = {
        "predicate": '["(_key#1 = _key#2)"]',
        "matchedPredicates": '[{"predicate":"(_version#3 > _version#4)"}]',
    }
    table.commit("MERGE", {("a", 0)}, parameters=by_version)
    table.commit("MERGE", {("a", 1)}, parameters=by_version)
    table_watch.of_shared(settings, name).check(None)
    table.merge(("a", 1))
    with pytest.raises(QuarantineError, match=r"MERGE at version 3 .* RESTORE it to version 2"):
        table_watch.of_shared(settings, name).check(None)


# --- the rules, and drawn histories against rows


def test_a_restore_undoes_what_came_after_its_version():
    def change(version, kind, restored=None):
        return Change(version, kind, "X", "me", 0, restored)

    both = [change(5, CHANGED), change(7, RESTORED, 4)]
    assert [c.version for c in effective(both, 9)] == [7]
    assert [(s.start, s.end) for s in fallen(both, 9)] == [(5, 8)]
    assert [(s.start, s.end) for s in fallen(both, 6)] == [(0, 6)]
    again = [*both, change(9, RESTORED, 6)]
    assert [c.version for c in effective(again, 9)] == [9, 5]
    assert [(s.start, s.end) for s in fallen(again, 9)] == [(0, 6), (7, 10)]
    assert [(s.start, s.end) for s in fallen([change(3, ADDED)], 9)] == []
    assert told(change(7, RESTORED, 4)) == "X to version 4 at version 7 by me at 1970-01-01T00:00:00Z"


def whole(table, version):
    """Whether a version shows each row that we ever wrote, as we wrote it."""
    written = {row for rows in table.rows for row in rows if row[0].startswith(APP) and row[1] == 0}
    return written <= table.rows[version]


def step(draw, table):
    """Do one thing to the table, as we or as others."""
    mine = sorted(row for row in table.now if row[0].startswith(APP))
    some = draw.sample(mine, draw.randint(1, len(mine))) if mine else []
    acts = [
        lambda: table.write(APP, len(table.rows), rows=draw.randint(1, 3)),
        lambda: table.write(APP, len(table.rows)),
        getattr(table, draw.choice(HARMLESS)),
        table.append,
        lambda: table.restore(draw.randrange(1, len(table.rows))),
        lambda: table.restore(max(1, table.version - draw.randint(1, 2))),
    ]
    if some:
        acts += [
            lambda: table.delete(*some),
            lambda: table.update(*some),
            table.truncate,
            table.overwrite,
            table.replace,
        ]
    draw.choice(acts)()


def test_a_drawn_history_stops_the_writer_exactly_when_rows_of_ours_are_gone(settings):
    stopped = healed = 0
    for number in range(SEQUENCES):
        draw, table_id = random.Random(f"{SEED}-{number}"), f"id-{number}"
        table = Table(tables.path(settings, f"{NAME}-{number}")).create()
        tables.mark(settings, f"{NAME}-{number}", table_id)
        kept = table_watch.of_output(settings, JOB, f"{NAME}-{number}")
        table.write(APP, 1)
        for _ in range(STEPS):
            step(draw, table)
            fresh = table_watch.of_output(settings, JOB, f"{NAME}-{number}")
            text = problem(draw.choice([kept, fresh]))
            where = f"SEED={SEED}, sequence {number}, version {table.version}"
            assert bool(text) == (not whole(table, table.version)), where
            if not text:
                continue
            stopped += 1
            back = re.search(r"RESTORE it to version (\d+)", text)
            assert bool(back) == any(whole(table, v) for v in range(len(table.rows))), where
            if back and draw.random() < 0.5:
                healed += 1
                table.restore(int(back[1]))
                assert problem(fresh) == "", where
    assert stopped > SEQUENCES
    assert healed > SEQUENCES / 2
