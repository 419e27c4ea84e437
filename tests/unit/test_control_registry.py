"""The registry: what its schema forbids, what races decide once, and what is harmless when done again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import create_engine, func, insert, inspect, make_url, select, text, update
from sqlalchemy.exc import IntegrityError

from rewind.control import chunk_log, database, generations, manifest, ports, progress, rewinds, schema, verdicts
from rewind.control.database import now, transaction
from rewind.control.manifest import Entry
from rewind.control.verdicts import Approval, Verdict
from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RetryError, RewindError, WorldMovedError
from rewind.core.offsets import OffsetRange
from rewind.core.plan import Plan, Request, sealed
from rewind.core.world import Batch
from tests.support.fakes import generation as a_generation
from tests.support.fakes import installation

GRACE = timedelta(hours=1)
G1, G2, G3 = "visits_converter-g1", "visits_converter-g2", "visits_converter-g3"


@pytest.fixture
def url(tmp_path):
    return installation(tmp_path / "home").registry_url


@pytest.fixture
def registry(url):
    with transaction(url) as connection:
        yield connection


def create(connection, number=1, state=lifecycle.CANDIDATE, rewind_id=None, **changes):
    """Record a generation of the usual pipeline."""
    return generations.create(connection, a_generation(number=number, state=state, **changes), rewind_id)


def a_plan(number=2, **changes):
    values = {
        "kind": "rewind",
        "request": Request("visits_converter", reason="a bug"),
        "job_id": f"visits_converter-g{number}",
        "live_job_id": G1,
        "epoch": 1,
        "topic": "visits",
        "topic_id": "T",
        "start": {0: 0},
        "end": {0: 9},
        "mirror_version": 7,
        "records": 9,
        "bytes": 9,
        "chunks": 1,
        "estimate_seconds": 0.1,
        "differences": (),
        "config": {},
        "bundle": "b2",
        "output_schema": "",
        "output_topic": "o",
        "dead_letter_topic": "d",
    }
    return sealed(Plan(**values | changes))


# --- the database


def test_upgrade_makes_every_table_and_is_harmless_again(tmp_path):
    url = f"sqlite:///{tmp_path}/not/there/yet/registry.db"
    for _ in range(2):
        database.upgrade(url)

    assert set(inspect(database.engine(url)).get_table_names()) == {*schema.metadata.tables, "alembic_version"}
    with transaction(url) as connection:
        assert connection.execute(select(schema.protocol.c.number)).scalars().all() == [schema.PROTOCOL]
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"


def test_a_registry_of_newer_code_is_refused(registry):
    database.check_protocol(registry)
    registry.execute(update(schema.protocol).values(number=schema.PROTOCOL + 1))

    with pytest.raises(RefusedError, match=f"speaks protocol {schema.PROTOCOL + 1}, this bundle {schema.PROTOCOL}"):
        database.check_protocol(registry)


def test_a_transaction_is_whole_or_nothing(url):
    def half_done():
        with transaction(url) as connection:
            create(connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half_done()

    with transaction(url) as connection:
        assert generations.find(connection, G1) is None


def test_a_registry_out_of_reach_asks_for_a_retry_and_tells_no_password(tmp_path, monkeypatch):
    away = create_engine(f"sqlite:///{tmp_path}/not/there/registry.db")
    away.url = make_url("postgresql://ann:hidden@db/rewind")
    monkeypatch.setattr(database, "engine", lambda *_: away)

    with pytest.raises(RetryError) as raised, transaction("any"):
        pass

    assert "registry postgresql://ann:***@db/rewind: unable to open" in str(raised.value)


def test_a_registry_that_stays_locked_asks_for_a_retry(url):
    with transaction(url), ThreadPoolExecutor(1) as other, pytest.raises(RetryError, match="locked"):
        other.submit(lambda: transaction(url, patience=20).__enter__()).result(20)


# --- what the schema itself forbids


@pytest.mark.parametrize("state", [lifecycle.LIVE, lifecycle.CANDIDATE])
def test_the_schema_holds_one_live_and_one_candidate_a_pipeline(registry, state):
    create(registry, 1, lifecycle.RETIRED)
    create(registry, 2, lifecycle.RETIRED)
    table = schema.generations
    registry.execute(update(table).where(table.c.job_id == G1).values(state=state))

    with pytest.raises(IntegrityError):
        registry.execute(update(table).where(table.c.job_id == G2).values(state=state))


def test_pipelines_do_not_stand_in_each_others_way(registry):
    create(registry, 1)
    generations.create(registry, replace(a_generation(state="candidate"), job_id="other-g1", pipeline="other"), None)


def test_the_schema_holds_one_active_rewind_a_pipeline(registry):
    made = a_plan()
    rewinds.store_plan(registry, made)
    row = {
        "pipeline": "visits_converter",
        "plan_id": made.id,
        "job_id": G2,
        "state": "active",
        "reason": "",
        "created_at": now(),
    }
    registry.execute(insert(schema.rewinds).values(id="rw-1", **row))

    with pytest.raises(IntegrityError):
        registry.execute(insert(schema.rewinds).values(id="rw-2", **row))


def test_the_schema_holds_a_pointer_to_a_generation_that_is_there(registry):
    with pytest.raises(IntegrityError):
        registry.execute(insert(schema.pointers).values(pipeline="p", job_id="p-g1", epoch=1, moved_at=now()))


def test_the_schema_holds_each_number_once(registry):
    create(registry, 1, lifecycle.RETIRED)
    with pytest.raises(RefusedError):
        create(registry, 1, lifecycle.RETIRED, job_id="elsewhere-g1")


# --- generations


def test_a_generation_comes_back_as_it_was_made(registry):
    made = create(registry, 2, handoff=None, start={0: 5, 10: 7})
    assert generations.read(registry, G2) == made
    assert generations.rewind_of(registry, G2) is None
    assert [g.job_id for g in generations.all_of(registry, "visits_converter")] == [G2]
    assert generations.in_state(registry, "visits_converter", "candidate") == [made]
    assert generations.in_state(registry, "visits_converter", "live") == []


def test_creating_again_returns_what_was_recorded_first(registry):
    first = create(registry, 2, rewind_id="rw-1")
    assert create(registry, 2, rewind_id="rw-1", bundle="other") == first


def test_a_job_id_of_another_rewind_is_refused(registry):
    create(registry, 2, rewind_id="rw-1")
    with pytest.raises(RefusedError, match=f"{G2} belongs to rewind rw-1"):
        create(registry, 2, rewind_id="rw-2")


def test_a_second_candidate_is_refused(registry):
    create(registry, 2)
    with pytest.raises(RefusedError, match="visits_converter has a candidate already"):
        create(registry, 3)


def test_an_unknown_generation_is_refused(registry):
    with pytest.raises(RefusedError, match="'visits_converter-g1' is unknown"):
        generations.read(registry, G1)
    assert generations.find(registry, G1) is None


def test_numbers_are_never_used_again(registry):
    assert generations.next_number(registry, "visits_converter", "g") == 1
    create(registry, 1, lifecycle.COLLECTED)
    create(registry, 7, lifecycle.ABORTED)
    assert generations.next_number(registry, "visits_converter", "g") == 8
    assert generations.next_number(registry, "visits_converter", "r") == 1


def test_a_handoff_is_fixed_once(registry):
    create(registry, 2, handoff=None)
    assert generations.set_handoff(registry, G2, {0: 5, 1: 6}) == {0: 5, 1: 6}
    assert generations.set_handoff(registry, G2, {0: 9, 1: 9}) == {0: 5, 1: 6}


def test_moves_go_by_the_lifecycle_and_are_harmless_again(registry):
    create(registry, 1)
    for _ in range(2):
        generations.move(registry, G1, lifecycle.ABORTED)
    with pytest.raises(RefusedError, match="is aborted and cannot become live"):
        generations.move(registry, G1, lifecycle.LIVE)
    assert generations.read(registry, G1).state == "aborted"


def test_a_move_that_another_transaction_overtook_is_refused(registry, monkeypatch):
    stale = create(registry, 1)
    generations.move(registry, G1, lifecycle.ABORTED)
    monkeypatch.setattr(generations, "read", lambda connection, job_id: stale)
    with pytest.raises(WorldMovedError, match=f"{G1} is no longer candidate"):
        generations.move(registry, G1, lifecycle.LIVE)


# --- the pointer


def deployed(connection):
    create(connection, 1)
    generations.set_first(connection, G1)
    create(connection, 2)


def switch(connection, old=G1, new=G2, epoch=1):
    return generations.switch(connection, "visits_converter", old, new, epoch, GRACE)


def states(connection):
    return {g.job_id[-2:]: g.state for g in generations.all_of(connection, "visits_converter")}


def test_the_first_generation_is_epoch_one(registry):
    assert generations.live(registry, "visits_converter") is None
    create(registry, 1)
    assert [generations.set_first(registry, G1) for _ in range(2)] == [1, 1]
    assert generations.live(registry, "visits_converter") == (generations.read(registry, G1), 1)


def test_a_second_first_generation_is_refused(registry):
    deployed(registry)
    with pytest.raises(RefusedError, match=f"visits_converter has {G1} live"):
        generations.set_first(registry, G2)


def test_a_switch_moves_pointer_and_states_at_once(registry):
    deployed(registry)
    before = now()

    assert switch(registry) == 2
    assert generations.live(registry, "visits_converter") == (generations.read(registry, G2), 2)
    assert states(registry) == {"g1": "standby", "g2": "live"}
    assert before + GRACE <= generations.grace_until(registry, G1) <= now() + GRACE


def test_a_switch_done_already_returns_its_epoch_and_moves_nothing(registry):
    deployed(registry)
    switch(registry)
    until = generations.grace_until(registry, G1)

    assert switch(registry) == 2
    assert (states(registry), generations.grace_until(registry, G1)) == ({"g1": "standby", "g2": "live"}, until)


@pytest.mark.parametrize(("old", "new", "epoch"), [(G1, G2, 2), (G3, G2, 1), (G2, G1, 1), (G1, G3, 0)])
def test_a_pointer_that_is_elsewhere_is_not_moved(registry, old, new, epoch):
    deployed(registry)
    with pytest.raises(
        WorldMovedError, match=f"the pointer of visits_converter is at {G1} at epoch 1, not {old} at {epoch}"
    ):
        switch(registry, old, new, epoch)
    assert states(registry) == {"g1": "live", "g2": "candidate"}


def test_a_pointer_that_is_nowhere_is_not_moved(registry):
    with pytest.raises(WorldMovedError, match="is at nowhere"):
        switch(registry)


def test_a_rollback_is_one_more_switch_and_forward_again_too(registry):
    deployed(registry)
    switch(registry)
    assert switch(registry, G2, G1, 2) == 3
    assert states(registry) == {"g1": "live", "g2": "standby"}
    assert switch(registry, G1, G2, 3) == 4


def test_a_switch_to_what_may_not_live_moves_nothing(url):
    with transaction(url) as connection:
        deployed(connection)
        generations.move(connection, G2, lifecycle.ABORTED)

    with pytest.raises(RefusedError, match="is aborted and cannot become live"), transaction(url) as connection:
        switch(connection)

    with transaction(url) as connection:
        assert generations.live(connection, "visits_converter")[1] == 1
        assert states(connection) == {"g1": "live", "g2": "aborted"}


def test_a_new_cut_over_ends_the_grace_of_older_standbys_alone(registry):
    deployed(registry)
    switch(registry)
    create(registry, 3)
    switch(registry, G2, G3, 2)
    generations.end_older_standbys(registry, "visits_converter", newest=G2)

    assert generations.grace_until(registry, G1) <= now()
    assert generations.grace_until(registry, G2) > now()


def raced(act, count):
    """Run `act(n)` in threads that begin together; return what each gave, errors by their class."""
    gate = threading.Barrier(count)

    def run(number):
        gate.wait()
        try:
            return act(number)
        except RewindError as error:
            return type(error).__name__

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_of_racing_switches_one_wins(url):
    with transaction(url) as connection:
        deployed(connection)
        for number in (3, 4, 5):
            create(connection, number, lifecycle.STANDBY)

    def act(number):
        with transaction(url) as connection:
            return switch(connection, new=f"visits_converter-g{number + 2}")

    outcome = raced(act, 4)
    assert sorted(map(str, outcome)) == ["2", "WorldMovedError", "WorldMovedError", "WorldMovedError"]
    with transaction(url) as connection:
        assert list(states(connection).values()).count("live") == 1
        assert generations.live(connection, "visits_converter")[0].job_id == f"visits_converter-g{outcome.index(2) + 2}"


SWITCH = """
import sys
from datetime import timedelta
from rewind.control import generations
from rewind.control.database import transaction
from rewind.core.errors import WorldMovedError
url, new = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
try:
    with transaction(url) as connection:
        print(generations.switch(connection, "visits_converter", "visits_converter-g1", new, 1, timedelta(0)))
except WorldMovedError:
    print("moved")
"""


def test_of_racing_processes_one_wins(url, project):
    with transaction(url) as connection:
        deployed(connection)
        create(connection, 3, lifecycle.STANDBY)
    command = [sys.executable, "-c", SWITCH, url]
    environment = {"PYTHONPATH": str(project / "include")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen([*command, job], env=environment, **pipes) for job in (G2, G3)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()

    assert sorted(racer.communicate()[0].strip() for racer in racers) == ["2", "moved"]


def test_of_racing_candidates_and_rewinds_one_is_made(url):
    def candidate(number):
        with transaction(url) as connection:
            create(connection, number + 1)
            return "made"

    def rewind(number):
        with transaction(url) as connection:
            rewinds.open_rewind(connection, f"rw-{number}", a_plan())
            return "made"

    for act in (candidate, rewind):
        assert sorted(raced(act, 3)) == ["RefusedError", "RefusedError", "made"]


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


def test_controls_of_a_backfill(registry):
    rewinds.open_rewind(registry, "rw-1", a_plan())
    assert rewinds.controls(registry, "rw-1") == (False, None)
    rewinds.set_controls(registry, "rw-1", paused=True, records_per_second=500)
    assert rewinds.controls(registry, "rw-1") == (True, 500)
    rewinds.set_controls(registry, "rw-1", paused=False, records_per_second=None)
    assert rewinds.controls(registry, "rw-1") == (False, None)


def test_a_bad_limit_and_an_ended_rewind_are_not_controlled(registry):
    rewinds.open_rewind(registry, "rw-1", a_plan())
    with pytest.raises(RefusedError) as raised:
        rewinds.set_controls(registry, "rw-1", paused=False, records_per_second=0)
    assert raised.value.field == "records_per_second"
    rewinds.close(registry, "rw-1", lifecycle.ABORTED)
    with pytest.raises(RefusedError, match="rewind rw-1 is aborted"):
        rewinds.set_controls(registry, "rw-1", paused=True, records_per_second=None)
    assert rewinds.controls(registry, "rw-1") == (False, None)


# --- chunks and progress


def test_chunks_are_cut_once_a_wave_and_numbered_through(registry):
    first = [{0: OffsetRange(0, 5), 1: OffsetRange(0, 2)}, {0: OffsetRange(5, 9)}]
    chunk_log.add_wave(registry, "rw-1", 0, first)
    chunk_log.add_wave(registry, "rw-1", 0, [{0: OffsetRange(0, 1)}])
    chunk_log.add_wave(registry, "rw-1", 1, [{0: OffsetRange(9, 12)}])
    chunk_log.begin(registry, "rw-1", 0)
    for _ in range(2):
        chunk_log.finish(registry, "rw-1", 0, rows=6, repeats=1)

    assert [(c.number, c.wave, c.ranges, c.state, c.rows, c.repeats) for c in chunk_log.read(registry, "rw-1")] == [
        (0, 0, first[0], "done", 6, 1),
        (1, 0, first[1], "planned", None, None),
        (2, 1, {0: OffsetRange(9, 12)}, "planned", None, None),
    ]
    assert chunk_log.read(registry, "rw-2") == []


def test_a_feed_has_the_chunks_that_hold_records_alone(registry):
    chunk_log.add_wave(registry, "rw-1", 0, [{0: OffsetRange(n, n + 2)} for n in range(0, 8, 2)])
    for number, rows in enumerate((2, 0, 1)):
        chunk_log.count(registry, "rw-1", number, rows, 0)
    assert [chunk.number for chunk in chunk_log.fed(registry, "rw-1")] == [0, 2]


def test_position_is_the_end_of_the_last_batch_else_the_handoff(registry):
    assert progress.position(registry, G1, None) == {}
    assert progress.position(registry, G1, {0: 5, 1: 6}) == {0: 5, 1: 6}
    for number, end in ((2, 7), (10, 9)):
        progress.record(registry, G1, 1, Batch(number, {0: 5}, {0: end}, 2, now()))

    assert progress.position(registry, G1, {0: 5, 1: 6}) == {0: 9, 1: 6}
    assert progress.position(registry, G2, {0: 1}) == {0: 1}
    assert [b.batch for b in progress.recent(registry, G1, 5)] == [10, 2]
    assert [b.batch for b in progress.recent(registry, G1, 1)] == [10]


def test_a_batch_recorded_again_is_one_batch(registry):
    for rows in (2, 3):
        progress.record(registry, G1, 1, Batch(4, {0: 5}, {0: 9}, rows, now()))
    assert [(b.batch, b.rows) for b in progress.recent(registry, G1, 5)] == [(4, 3)]
    assert progress.newest(registry, G2) is None


# --- verdicts


AT = datetime.fromisoformat("2025-09-04T12:00")


def judge(connection, verdict, attempt=1, backfill_attempt=1, reason=""):
    made = Verdict(attempt, backfill_attempt, verdict, {0: 0}, {0: 9}, {"equal": 9}, [{"offset": 3}], reason, AT)
    verdicts.store(connection, "rw-1", made)
    return made


def backfilled(connection, times=1):
    for _ in range(times):
        attempt = rewinds.begin_step(connection, "rw-1", "backfill")
        rewinds.end_step(connection, "rw-1", "backfill", attempt, "done", None)


def test_the_newest_verdict_is_read_back(registry):
    assert verdicts.newest(registry, "rw-1") is None
    judge(registry, "fail")
    made = judge(registry, "pass", attempt=2)
    assert verdicts.newest(registry, "rw-1") == made


def test_a_pass_is_approved_and_acted_on(registry):
    backfilled(registry)
    made = judge(registry, "pass")
    for _ in range(2):
        verdicts.answer(registry, "rw-1", "approve", "ann", "")

    assert verdicts.approval(registry, "rw-1") == Approval(1, "approve", "ann", "")
    assert verdicts.approved(registry, "rw-1") == made


@pytest.mark.parametrize(("person", "reason"), [("", "why"), ("ann", ""), ("ann", "  "), ("", "")])
def test_a_fail_needs_a_person_and_a_reason(registry, person, reason):
    backfilled(registry)
    judge(registry, "fail")
    with pytest.raises(RefusedError) as raised:
        verdicts.answer(registry, "rw-1", "approve", person, reason)
    assert raised.value.field == "reason"
    assert verdicts.approval(registry, "rw-1") is None

    verdicts.answer(registry, "rw-1", "approve", "ann", "known difference")
    assert verdicts.approved(registry, "rw-1").verdict == "fail"


def test_an_error_is_never_approved(registry):
    backfilled(registry)
    judge(registry, "error", reason="topic unreadable")
    with pytest.raises(RefusedError, match=r"the verdict is an error \(topic unreadable\)"):
        verdicts.answer(registry, "rw-1", "approve", "ann", "I insist")
    assert verdicts.approval(registry, "rw-1") is None


def test_an_error_is_not_acted_on_whatever_the_answers_say(registry):
    backfilled(registry)
    judge(registry, "error")
    values = {"answer": "approve", "person": "ann", "reason": "x", "at": now()}
    registry.execute(insert(schema.approvals).values(rewind_id="rw-1", attempt=1, **values))
    with pytest.raises(RefusedError, match="rw-1 has no verdict to act on"):
        verdicts.approved(registry, "rw-1")


def test_without_verdict_there_is_nothing_to_answer_or_act_on(registry):
    with pytest.raises(RefusedError, match="rw-1 has no verdict"):
        verdicts.answer(registry, "rw-1", "approve", "ann", "x")
    with pytest.raises(RefusedError, match="rw-1 has no verdict to act on"):
        verdicts.approved(registry, "rw-1")


@pytest.mark.parametrize(("first", "second"), [("approve", "reject"), ("reject", "approve")])
def test_an_answer_is_not_changed(registry, first, second):
    judge(registry, "pass")
    verdicts.answer(registry, "rw-1", first, "ann", "x")
    with pytest.raises(RefusedError, match=f"rw-1 has the answer {first} by ann"):
        verdicts.answer(registry, "rw-1", second, "bob", "y")


@pytest.mark.parametrize("given", [None, "reject"])
def test_what_is_not_approved_is_not_acted_on(registry, given):
    backfilled(registry)
    judge(registry, "pass")
    if given:
        verdicts.answer(registry, "rw-1", given, "ann", "x")
    with pytest.raises(RefusedError, match="rw-1 is not approved"):
        verdicts.approved(registry, "rw-1")


def test_an_answer_holds_for_its_attempt_alone(registry):
    backfilled(registry)
    judge(registry, "pass")
    verdicts.answer(registry, "rw-1", "approve", "ann", "x")
    judge(registry, "pass", attempt=2)

    assert verdicts.approval(registry, "rw-1") is None
    with pytest.raises(RefusedError, match="is not approved"):
        verdicts.approved(registry, "rw-1")


def test_a_backfill_done_again_after_the_verdict_is_refused(registry):
    """Case C28 a: backfill alone was cleared, and cut-over starts on the old verdict."""
    backfilled(registry)
    judge(registry, "pass")
    verdicts.answer(registry, "rw-1", "approve", "ann", "x")
    backfilled(registry)

    with pytest.raises(RefusedError) as raised:
        verdicts.approved(registry, "rw-1")
    assert raised.value.problem == "validated attempt 1 of backfill, backfilled attempt 2"


# --- the manifest and the ledger


def test_the_manifest_names_before_it_is_made_with_topics_last(registry):
    for kind, name in ((manifest.TOPIC, "out-g2"), (manifest.GROUP, G2), (manifest.FOLDER, "/data/g2")):
        for _ in range(2):
            manifest.name(registry, G2, kind, name)
    manifest.made(registry, G2, manifest.TOPIC, "out-g2", "T1")
    manifest.name(registry, G2, manifest.TOPIC, "out-g2")

    assert manifest.read(registry, G2) == [
        Entry("folder", "/data/g2", None, "named"),
        Entry("group", G2, None, "named"),
        Entry("topic", "out-g2", "T1", "made"),
    ]
    assert manifest.read(registry, G1) == []


def test_the_ledger_keeps_every_line(registry):
    entry = Entry("topic", "out-g2", "T1", "made")
    manifest.record(registry, G2, entry, "refused", "another id")
    manifest.record(registry, G2, entry, "deleted", "")
    manifest.set_state(registry, G2, "topic", "out-g2", manifest.DELETED)

    assert [(d.name, d.resource_id, d.result, d.detail) for d in manifest.ledger(registry, G2)] == [
        ("out-g2", "T1", "refused", "another id"),
        ("out-g2", "T1", "deleted", ""),
    ]
    assert manifest.ledger(registry, G1) == []


# --- the planner's view


def test_the_planner_reads_live_position_rewind_and_numbers(url):
    seen = ports.Lifecycle(url)
    assert (seen.live("visits_converter"), seen.active_rewind("visits_converter")) == (None, None)
    with transaction(url) as connection:
        deployed(connection)
        progress.record(connection, G1, 1, Batch(0, {0: 0}, {0: 42}, 42, now()))
        rewinds.open_rewind(connection, "rw-1", a_plan())

    live, epoch = seen.live("visits_converter")
    assert (live.job_id, live.state, epoch) == (G1, "live", 1)
    assert seen.position(G1) == {0: 42, 1: 0}
    assert seen.active_rewind("visits_converter") == "rw-1"
    assert (seen.next_number("visits_converter", "g"), seen.next_number("visits_converter", "r")) == (3, 1)


def test_vectors_have_text_keys_in_order_in_json():
    assert json.dumps(database.vector_to_json({10: 1, 2: 0})) == '{"2": 0, "10": 1}'
    assert database.vector_from_json({"10": 1, "2": 0}) == {10: 1, 2: 0}
    assert database.vector_from_json(None) == {}
