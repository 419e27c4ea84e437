"""A mirror that somebody restored, emptied or rewrote: neither its stream nor a reader believes its commit records."""

from __future__ import annotations

import json
import os
import random

import pytest

from rewind.adapters import mirror, mirror_reader
from rewind.adapters.mirror_reader import read_state, watch
from rewind.core.errors import IntegrityError, QuarantineError, RefusedError
from rewind.core.mirror_proof import Proof
from rewind.core.model import Batch
from rewind.core.offsets import OffsetRange as R
from rewind.core.planning import resolved_range
from rewind.core.planning.resolved_range import Sight
from rewind.core.planning.stages import REWIND, SHAPES
from rewind.registry import progress
from rewind.registry.database import now, writing
from rewind.registry.mirrors import mirror_changes, mirror_log, proof_log
from rewind.registry.mirrors.mirror_log import Commit
from rewind.steps.compare import lateness
from rewind.steps.feed.history import History
from rewind.steps.mirroring.mirror import Writer
from tests.support import fakes
from tests.support.delta_files import Table, read_locally
from tests.support.fakes import PIPELINE, TOPIC, TOPIC_ID

SEED = int(os.environ.get("SEED", "20"))
SEQUENCES, STEPS = int(os.environ.get("SEQUENCES", "12")), 14
APP = f"mirror-{TOPIC_ID}-q"
TOPIC_NOW = fakes.topic({0: 0}, {0: 100})


class Mirrored:
    """A mirror of one partition whose commits are recorded; `sure` says per version what surely stands in it."""

    def __init__(self, settings):
        self.settings = settings
        self.table = Table(mirror.folder(settings, TOPIC) / "table").create()
        self.sure = [frozenset()]
        self.commits = []

    def append(self, start, end, batch=None):
        """Mirror some offsets, and record it."""
        body = json.dumps({"topic_id": TOPIC_ID, "ranges": {"0": [start, end]}})
        number = len(self.commits) if batch is None else batch
        rows = self.table.now | {(f"{APP}:{offset}", 0) for offset in range(start, end)}
        version = self.table.commit("WRITE", rows, txn=(APP, number), metadata=body)
        made = Commit(version, TOPIC_ID, {0: R(start, end)}, {0: end - start}, {0: []}, 1)
        with writing(self.settings.registry_url) as connection:
            mirror_log.record(connection, TOPIC, made)
        self.commits.append(made)
        self.sure.append(self.sure[-1] | set(range(start, end)))
        return version

    def row(self, offset):
        return (f"{APP}:{offset}", 0)

    def state(self):
        watch(self.settings, TOPIC).look(None)
        return read_state(self.settings, TOPIC_NOW, False)

    def writer(self):
        """The stream's writer, without Spark."""
        made = object.__new__(Writer)
        made._spark, made._settings, made._topic = None, self.settings, TOPIC_NOW
        made._watch, made._checked = watch(self.settings, TOPIC), 0
        return made


@pytest.fixture
def mirrored(tmp_path, monkeypatch):
    read_locally(monkeypatch)
    monkeypatch.setattr(mirror_reader, "Broker", lambda _: fakes.FakeBroker(described={TOPIC: TOPIC_NOW}))
    made = Mirrored(fakes.installation(tmp_path / "home"))
    for start in (0, 10, 20):
        made.append(start, start + 10)
    return made


def gaps(state, start, end):
    sight = Sight(TOPIC_NOW, state, None, {0: 100}, None)
    return resolved_range.gaps("", SHAPES[REWIND], {0: start}, {0: end}, sight)


TAKE = {
    "restore": (lambda t: t.restore(1), {0: [R(10, 30)]}, "RESTORE to version 1 at version 4"),
    "truncate": (lambda t: t.truncate(), {0: [R(0, 30)]}, "TRUNCATE at version 4"),
    "overwrite": (lambda t: t.overwrite(), {0: [R(0, 30)]}, "WRITE at version 4"),
    "update": (lambda t: t.update((f"{APP}:5", 0)), {0: [R(0, 30)]}, "UPDATE at version 4"),
    "replace": (lambda t: t.replace(), {0: [R(0, 30)]}, "CREATE OR REPLACE TABLE at version 4"),
}


@pytest.mark.parametrize("name", TAKE)
def test_what_a_mirror_no_longer_surely_holds_is_planned_read_and_written_on_by_nobody(mirrored, name):
    act, void, said = TAKE[name]
    act(mirrored.table)
    by = "by Spark at 2025-09-04T07:00:00Z"
    state = mirrored.state()
    assert (state.void, state.changed) == (void, f"{said} {by}")
    assert state.covered == {0: [R(0, 30)]}

    with pytest.raises(RefusedError) as refused:
        gaps(state, 0, 30)
    first, last = void[0][0].start, void[0][0].end - 1
    assert str(refused.value) == (
        f"from: the mirror no longer surely holds partition 0 offset {first}-{last}, since its table was changed: "
        f"{said} {by}. RESTORE it to the version before, or choose a range without them"
    )
    history = History(None, mirrored.settings, PIPELINE, TOPIC_ID)
    with pytest.raises(IntegrityError, match=f"{said} .* Version 4 no longer surely holds partition 0 offset {first}-"):
        history.refuse_void({0: R(0, 30)}, 4)
    # What a plan pinned before stands, as long as its files do.
    history.refuse_void({0: R(0, 30)}, 3)

    with pytest.raises(QuarantineError, match=f"^mirror of {TOPIC}: {said} .* partition 0 offset {first}-{last}"):
        mirrored.writer()._check({0: 30})

    mirrored.table.restore(3)
    assert (mirrored.state().void, mirrored.state().changed) == ({}, "")
    assert gaps(mirrored.state(), 0, 30) == {}
    history.refuse_void({0: R(0, 30)}, 5)
    mirrored.writer()._check({0: 30})


def test_a_range_that_still_stands_is_planned_and_read(mirrored):
    mirrored.table.restore(1)
    assert gaps(mirrored.state(), 0, 10) == {}
    History(None, mirrored.settings, PIPELINE, TOPIC_ID).refuse_void({0: R(0, 10)}, 4)


def test_maintenance_and_rows_that_others_add_stop_nothing(mirrored):
    for act in (mirrored.table.compact, mirrored.table.vacuum, mirrored.table.optimize, mirrored.table.append):
        act()
    mirrored.writer()._check({0: 30})
    assert mirrored.state().void == {}


def test_a_compaction_that_lost_rows_is_a_rewrite(mirrored):
    metrics = {"numDeletedRows": "30", "numOutputRows": "29"}
    mirrored.table.commit("WRITE", mirrored.table.now, metrics=metrics, moves=False, rewrites=True)
    assert mirrored.state().void == {0: [R(0, 30)]}


def test_a_mirror_that_was_made_anew_is_neither_planned_nor_read_nor_written(mirrored):
    mirrored.state()
    mirrored.table.made_anew()
    for ask in (
        mirrored.state,
        lambda: mirrored.writer()._check({0: 30}),
        lambda: History(None, mirrored.settings, PIPELINE, TOPIC_ID).refuse_void({0: R(0, 9)}, 3),
    ):
        with pytest.raises(QuarantineError, match=r"^mirror-visits: version 3 of its table is not the commit that was"):
            ask()


def test_a_batch_is_not_appended_to_a_mirror_that_was_emptied(mirrored, monkeypatch):
    mirrored.table.truncate()
    writer = mirrored.writer()
    writer.path = writer.checkpoint = ""
    monkeypatch.setattr("rewind.adapters.checkpoint.start_offsets", lambda *_: {0: 30})
    monkeypatch.setattr("rewind.adapters.checkpoint.end_offsets", lambda *_: {0: 40})
    monkeypatch.setattr("rewind.adapters.checkpoint.query_id", lambda *_: "q")
    monkeypatch.setattr("rewind.adapters.kafka.as_records", lambda _: pytest.fail("read"))
    with pytest.raises(QuarantineError, match="TRUNCATE at version 4"):
        writer.append(None, 3)


def test_no_record_is_read_of_a_version_that_was_rewritten(mirrored, monkeypatch):
    mirrored.table.update(mirrored.row(5))
    monkeypatch.setattr(mirror, "read", lambda *_: pytest.fail("read"))
    with pytest.raises(IntegrityError, match="UPDATE at version 4"):
        History(None, mirrored.settings, PIPELINE, TOPIC_ID).read({0: R(0, 30)}, 4, {})


def test_no_difference_is_explained_by_a_version_that_was_rewritten(mirrored, monkeypatch):
    mirrored.table.update(mirrored.row(5))
    with writing(mirrored.settings.registry_url) as connection:
        for job in (fakes.generation(), fakes.generation(number=2)):
            progress.record(connection, job.job_id, 1, Batch(0, {0: 0}, {0: 30}, 30, now()))
    monkeypatch.setattr(lateness, "_mirrored", lambda *_: 4)
    monkeypatch.setattr(mirror, "read", lambda *_: None)
    jobs = fakes.generation(), fakes.generation(number=2)
    with pytest.raises(IntegrityError, match="UPDATE at version 4"):
        lateness._rows(None, mirrored.settings, *jobs, PIPELINE)


# --- a batch that is tried again


def test_a_batch_whose_commit_was_restored_away_is_not_held(mirrored):
    writer = mirrored.writer()
    writer._check({0: 20})
    assert writer._holds({0: R(20, 30)})
    mirrored.table.restore(2)
    # It is what the stream reads next: nothing before it is gone.
    writer._check({0: 20})
    assert not writer._holds({0: R(20, 30)})
    assert writer._holds({0: R(10, 20)})


def test_what_was_read_again_stands(mirrored):
    mirrored.table.restore(1)
    mirrored.sure.append(frozenset(range(10)))
    mirrored.append(0, 25, batch=0)
    assert mirrored.state().void == {0: [R(25, 30)]}
    writer = mirrored.writer()
    writer._check({0: 25})
    with pytest.raises(QuarantineError):
        mirrored.writer()._check({0: 30})


def test_offsets_that_were_recorded_as_deleted_are_missed_by_nobody(mirrored):
    mirrored.table.restore(1)
    with writing(mirrored.settings.registry_url) as connection:
        mirror_log.record_deletion(connection, TOPIC, TOPIC_ID, 0, R(10, 30), "gone for ever")
    assert mirrored.state().void == {}
    mirrored.writer()._check({0: 30})


# --- rows that were deleted


def record_deletion(mirrored, start, end):
    with writing(mirrored.settings.registry_url) as connection:
        mirror_log.record_deletion(connection, TOPIC, TOPIC_ID, 0, R(start, end), "asked for")


def proof(mirrored, version, end):
    made = Proof(TOPIC, TOPIC_ID, version, {0: R(0, end)}, {}, 30, 0)
    with writing(mirrored.settings.registry_url) as connection:
        proof_log.record(connection, made, {0: [R(0, end)]}, "prove")


def test_rows_deleted_by_hand_stop_the_stream_until_they_are_recorded(mirrored):
    mirrored.table.delete(mirrored.row(3), mirrored.row(4))
    # Counts and proofs find exactly what is gone, so that a plan is not refused for all the rest.
    assert mirrored.state().void == {}
    for known in (None, (3, 4)):
        if known:
            record_deletion(mirrored, *known)
        with pytest.raises(QuarantineError) as stopped:
            mirrored.writer()._check({0: 30})
    assert str(stopped.value) == (
        "mirror of visits: DELETE at version 4 by Spark at 2025-09-04T07:00:00Z. If it was on purpose, say so with "
        "`rewind record-deletion visits`; else RESTORE it to version 3. Then see with `rewind prove --topic visits` "
        "that nothing is lost"
    )
    record_deletion(mirrored, 4, 5)
    mirrored.writer()._check({0: 30})


def test_rows_deleted_twice_and_restored_between_count_once(mirrored):
    record_deletion(mirrored, 3, 4)
    mirrored.table.delete(mirrored.row(3))
    mirrored.table.restore(3)
    mirrored.table.delete(mirrored.row(3))
    mirrored.writer()._check({0: 30})
    mirrored.table.delete(mirrored.row(7))
    with pytest.raises(QuarantineError, match=r"DELETE at version 6 .*; DELETE at version 7"):
        mirrored.writer()._check({0: 30})


@pytest.mark.parametrize(("version", "end", "goes_on"), [(4, 30, True), (3, 30, False), (4, 29, False)])
def test_a_whole_proof_since_then_lets_the_stream_go_on(mirrored, version, end, goes_on):
    mirrored.table.delete(mirrored.row(3))
    proof(mirrored, version, end)
    if goes_on:
        mirrored.writer()._check({0: 30})
        return
    with pytest.raises(QuarantineError):
        mirrored.writer()._check({0: 30})


def test_no_proof_makes_good_what_was_rewritten(mirrored):
    """It counts offsets: other bytes, which Kafka no longer holds, it does not see."""
    mirrored.table.update(mirrored.row(3))
    proof(mirrored, 4, 30)
    with pytest.raises(QuarantineError, match="UPDATE at version 4"):
        mirrored.writer()._check({0: 30})


# --- drawn histories


def step(draw, made):
    """Do one thing to the mirror, and keep what surely stands, worked out forwards."""
    table, before = made.table, len(made.table.rows)
    to = draw.randrange(1, before)
    after = {
        "restore": made.sure[to],
        "delete": made.sure[-1],
        **dict.fromkeys(("update", "overwrite", "truncate", "replace"), frozenset()),
    }
    name = draw.choice(["append", "append", "again", "compact", "vacuum", "optimize", "restore", *after])
    rows = sorted(row for row in table.now if row[1] == 0 and row[0].startswith(APP))
    if name in ("append", "again"):
        end = max(c.ranges[0].end for c in made.commits)
        start = end if name == "append" else draw.randrange(end)
        made.append(start, start + draw.randint(1, 6))
        return
    if name in after and not rows and name != "restore":
        name = "vacuum"
    if name == "restore":
        moved = table.rows[to] != table.now or any(v > to for v in table.rewritten)
        table.restore(to)
        made.sure.append(after[name] if moved else made.sure[-1])
        return
    getattr(table, name)(*([draw.choice(rows)] if name in ("update", "delete") else []))
    made.sure += [after.get(name, made.sure[-1])] * (len(table.rows) - before)


def test_a_drawn_history_leaves_void_what_no_longer_surely_stands(tmp_path, monkeypatch):
    read_locally(monkeypatch)
    some = 0
    for number in range(SEQUENCES):
        draw = random.Random(f"{SEED}-{number}")
        made = Mirrored(fakes.installation(tmp_path / str(number)))
        made.append(0, 5)
        looking = watch(made.settings, TOPIC)
        for _ in range(STEPS):
            step(draw, made)
            if draw.random() < 0.5:
                looking = watch(made.settings, TOPIC)
            looking.look(None)
            version = draw.choice([made.table.version, draw.randrange(1, len(made.table.rows))])
            with writing(made.settings.registry_url) as connection:
                found = mirror_changes.void(connection, TOPIC, TOPIC_ID, looking.changes, version)
            offsets = {offset for part in found.get(0, []) for offset in range(part.start, part.end)}
            read = {o for c in made.commits if c.version <= version for o in range(c.ranges[0].start, c.ranges[0].end)}
            assert offsets == read - made.sure[version], f"SEED={SEED}, sequence {number}, version {version}"
            some += bool(offsets)
    assert some > SEQUENCES
