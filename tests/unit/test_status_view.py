"""The view of the state, on a registry of its own."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from dataclasses import asdict, replace
from datetime import datetime, timedelta

import pytest
from rich.console import Console
from sqlalchemy import Engine, event, insert, update

from rewind.cli import render
from rewind.core import lifecycle
from rewind.core.errors import DeniedError, RefusedError, RetryError
from rewind.core.horizon import Frontier
from rewind.core.model import Generation, Topic
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import Pipeline
from rewind.core.planning.plan import Plan, Request, sealed
from rewind.core.planning.stages import REWIND, SHAPES
from rewind.core.settings import from_environment
from rewind.registry import (
    chunk_log,
    database,
    generations,
    leases,
    manifest,
    observation,
    rewinds,
    schema,
    streams,
    verdicts,
)
from rewind.registry.leases import Holder, Process
from rewind.registry.mirrors import mirror_log
from rewind.views import status
from rewind.views.status_jobs import Ends, rate
from tests.scenarios import page_load

NOW = datetime.fromisoformat("2025-09-04T12:00")
PIPELINE = Pipeline("visits_converter", "visits", "event_id STRING", "visits_converted")
BIG = 9_007_199_254_740_993


class FakeBroker:
    def __init__(self, *topics, error=None):
        self._topics, self._error, self.asked = {t.name: t for t in topics}, error, 0

    def topic(self, name):
        self.asked += 1
        if self._error is not None:
            raise self._error
        return self._topics.get(name)

    def topics(self):
        return sorted(self._topics)


VISITS = Topic("visits", "id-1", {0: 0, 1: 0}, {0: 120, 1: 80})


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "pipelines").mkdir()
    home = {"REWIND_HOME": str(tmp_path / "home"), "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    made = from_environment({**home, "REWIND_PIPELINES": str(tmp_path / "pipelines")})
    made.home.mkdir()
    return made


@pytest.fixture
def registry(settings):
    database.upgrade(settings.registry_url)
    with database.engine(settings.registry_url).connect() as connection:
        yield connection


def declare(settings, name, body="source: {topic: visits, schema: 'a STRING'}\noutput: {topic: out}\n"):
    folder = settings.pipelines / name
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(body)
    (folder / "logic.py").write_text("")


def generation(number=1, state=lifecycle.LIVE, **changes):
    job = f"visits_converter-g{number}"
    made = Generation(
        job_id=job,
        pipeline="visits_converter",
        state=state,
        topic_id="id-1",
        bundle="b0",
        frozen={"config": PIPELINE.frozen()},
        start={0: 0, 1: 0},
        handoff={0: 10, 1: 5},
        output_topic=f"visits_converted-g{number}",
        dead_letter_topic=f"visits_converted-g{number}-dead",
    )
    return replace(made, **changes)


def plan(**changes):
    request = Request("visits_converter", observe_seconds=20, **changes)
    return sealed(
        Plan(
            kind=REWIND,
            request=request,
            job_id="visits_converter-g2",
            live_job_id="visits_converter-g1",
            epoch=1,
            topic="visits",
            topic_id="id-1",
            start={0: 0, 1: 0},
            end={0: 120, 1: 80},
            mirror_version=3,
            records=200,
            bytes=9_000,
            chunks=2,
            estimate_seconds=1.0,
            differences=(),
            config=PIPELINE.frozen(),
            bundle="b1",
            output_schema="a STRING",
            output_topic="visits_converted-g2",
            dead_letter_topic="visits_converted-g2-dead",
        )
    )


def deployed(connection):
    generations.create(connection, generation(state=lifecycle.CANDIDATE), None)
    generations.set_first(connection, "visits_converter-g1")
    streams.wish(connection, "visits_converter-g1", streams.GENERATION, streams.RUN)


def batch(connection, owner, number, end, rows, at):
    values = {"owner": owner, "batch": number, "token": 1, "start": {}, "end": end, "rows": rows, "at": at}
    connection.execute(insert(schema.progress).values(**values))


def read(settings, connection, broker=None):
    connection.commit()
    return status.read(settings, broker or FakeBroker(VISITS), NOW)


def test_no_registry_shows_what_is_declared_and_makes_none(settings):
    declare(settings, "visits_converter")
    found = status.read(settings, FakeBroker(), NOW)
    assert found.registry_read
    place = settings.home / "registry.db"
    cure = "Start the stack with `make up`, then deploy a pipeline"
    assert found.problems == (f"registry: there is none at {place}. {cure}",)
    assert [(p.name, p.declared, p.live, p.epoch) for p in found.pipelines] == [("visits_converter", True, None, 0)]
    assert not (settings.home / "registry.db").exists()


def test_a_registry_without_tables_is_empty(settings):
    sqlite3.connect(settings.home / "registry.db").close()
    (settings.home / "registry.db").touch()
    assert status.read(settings, FakeBroker(), NOW).problems[0].startswith("registry: it is empty. Start the stack")


def test_a_locked_registry_is_said_so(settings, monkeypatch):
    database.upgrade(settings.registry_url)
    monkeypatch.setattr("rewind.registry.snapshot.BUSY_MILLISECONDS", 1)
    other = sqlite3.connect(settings.home / "registry.db", isolation_level=None)
    other.execute("PRAGMA journal_mode=DELETE")
    other.execute("BEGIN EXCLUSIVE")
    found = status.read(settings, FakeBroker(), NOW)
    other.close()
    assert not found.registry_read
    assert found.problems[0].endswith("database is locked")


def test_a_broken_pipeline_is_shown_with_its_problem(settings, registry):
    declare(settings, "bad", "source: {}\n")
    found = read(settings, registry).pipeline("bad")
    assert not found.declared
    assert found.problem.startswith("bad/pipeline.yaml:1: 'output' is a required property. Expected the fields source ")


def test_an_unknown_pipeline_is_refused(settings, registry):
    with pytest.raises(RefusedError, match="'other' is unknown"):
        read(settings, registry).pipeline("other")


def test_position_lag_and_rate_of_live(settings, registry):
    deployed(registry)
    batch(registry, "visits_converter-g1", 0, {"0": 50, "1": 40}, 500, NOW - timedelta(seconds=50))
    batch(registry, "visits_converter-g1", 1, {"0": 100, "1": 70}, 90, NOW - timedelta(seconds=10))
    found = read(settings, registry).pipeline("visits_converter")
    job = found.jobs[0]
    assert (found.live, found.epoch, job.state) == ("visits_converter-g1", 1, "live")
    assert job.position == {0: 100, 1: 70}
    assert job.lag == 30
    assert job.rate == 1.8
    assert job.last_batch_at == NOW - timedelta(seconds=10)


@pytest.mark.parametrize(
    "error",
    [
        RetryError("Kafka at nowhere: away"),
        RefusedError("REWIND_KAFKA_OPTIONS_FILE", "the login is refused", "Fix it"),
        DeniedError("topic", "the broker denies Describe on visits", "Grant it"),
    ],
)
def test_a_broker_that_tells_nothing_leaves_lags_unknown_and_is_asked_once(settings, registry, error):
    deployed(registry)
    generations.create(registry, generation(2, lifecycle.CANDIDATE), None)
    broker = FakeBroker(error=error)
    found = read(settings, registry, broker)
    assert [job.lag for job in found.pipeline("visits_converter").jobs] == [None, None]
    assert found.problems == (str(error),)
    assert broker.asked == 1


def test_one_topic_that_is_not_shown_hides_no_other():
    class Denying(FakeBroker):
        def topic(self, name):
            if name == "carts":
                raise DeniedError("topic", "the broker denies Describe on carts", "Grant it")
            return super().topic(name)

    ends = Ends(Denying(VISITS), "127.0.0.1:1")
    assert [ends.topic(name) for name in ("carts", "visits", "carts")] == [None, VISITS, None]
    assert ends.problems == ("topic: the broker denies Describe on carts. Grant it",)
    assert ends.known


def test_no_broker_at_all_is_said(settings, registry):
    deployed(registry)
    registry.commit()
    found = status.read(settings, None, NOW)
    assert found.problems == ("Kafka at 127.0.0.1:1 does not answer: its ends are unknown",)


def test_a_recreated_topic_gives_no_lag(settings, registry):
    deployed(registry)
    found = read(settings, registry, FakeBroker(replace(VISITS, id="id-2")))
    job = found.pipeline("visits_converter").jobs[0]
    assert job.lag is None
    assert job.note == "topic visits was recreated: it has id id-2, not id-1"


def test_rate_fades_when_a_stream_stands_still():
    batches = [(NOW, 60), (NOW - timedelta(seconds=10), 999)]
    assert rate(batches, NOW) == 6.0
    assert rate(batches, NOW + timedelta(seconds=30)) == 1.5
    assert rate(batches[:1], NOW) == 0.0
    assert rate([], NOW) == 0.0


def hold(connection, owner, *processes, step="", host=""):
    me = leases.this_driver()
    leases.take(connection, owner, Holder(host or me.host, me.boot, processes, me.group, step=step))


GONE = Process(2**22 + 1, 7)


def driver_state(settings, registry, job_id="visits_converter-g1"):
    jobs = read(settings, registry).pipeline("visits_converter").jobs
    return next(job.driver for job in jobs if job.job_id == job_id)


def test_drivers_by_what_lives(settings, registry):
    me, owner = leases.process_of(os.getpid()), "visits_converter-g1"
    deployed(registry)
    assert driver_state(settings, registry).state == "dead"
    streams.set_launched(registry, owner, asdict(me))
    assert driver_state(settings, registry).state == "starting"
    streams.set_launched(registry, owner, None)
    hold(registry, owner, me, GONE)
    seen = driver_state(settings, registry)
    assert (seen.state, seen.pid, seen.token) == ("alive", os.getpid(), 1)
    streams.wish(registry, owner, streams.GENERATION, streams.DRAIN)
    assert driver_state(settings, registry).state == "draining"


def test_a_jvm_without_its_python_is_an_orphan(settings, registry):
    deployed(registry)
    hold(registry, "visits_converter-g1", GONE, leases.process_of(os.getpid()))
    assert driver_state(settings, registry).state == "orphan"
    # Nobody renews its lease, and yet something of it is there.
    registry.execute(update(schema.leases).values(renewed_at=NOW - timedelta(minutes=5)))
    assert driver_state(settings, registry).state == "orphan"


def test_a_driver_of_an_ended_job_is_an_orphan(settings, registry):
    deployed(registry)
    registry.execute(update(schema.generations).values(state=lifecycle.RETIRED))
    hold(registry, "visits_converter-g1", leases.process_of(os.getpid()))
    assert driver_state(settings, registry).state == "orphan"


@pytest.mark.parametrize(
    ("state", "step", "host", "shown"),
    [
        (lifecycle.CANDIDATE, "backfill", "", "backfilling"),
        (lifecycle.STAGING, "merge", "", "merging"),
        (lifecycle.CANDIDATE, "backfill", "elsewhere.test", "elsewhere"),
        (lifecycle.ABORTED, "backfill", "", "orphan"),
        (lifecycle.CANDIDATE, "", "", "orphan"),
    ],
)
def test_a_step_at_work_on_a_job_without_a_stream_is_no_orphan(settings, registry, state, step, host, shown):
    deployed(registry)
    generations.create(registry, generation(2, lifecycle.CANDIDATE, handoff=None), "rw-1")
    registry.execute(update(schema.generations).where(schema.generations.c.job_id.endswith("g2")).values(state=state))
    hold(registry, "visits_converter-g2", leases.process_of(os.getpid()), step=step, host=host)
    seen = driver_state(settings, registry, "visits_converter-g2")
    assert (seen.state, seen.step) == (shown, step)


def test_a_backfill_whose_python_is_gone_is_an_orphan(settings, registry):
    deployed(registry)
    generations.create(registry, generation(2, lifecycle.CANDIDATE, handoff=None), "rw-1")
    hold(registry, "visits_converter-g2", GONE, leases.process_of(os.getpid()), step="backfill")
    assert driver_state(settings, registry, "visits_converter-g2").state == "orphan"


def test_quarantine_and_back_off(settings, registry):
    deployed(registry)
    owner = "visits_converter-g1"
    for _ in range(streams.MOST_FAILURES):
        streams.count_failure(registry, owner, "boom\nits traceback")
    seen = driver_state(settings, registry)
    assert (seen.state, seen.failures, seen.cause) == ("quarantined", 5, "boom")
    assert seen.last_failure == "boom\nits traceback"
    later = NOW + timedelta(days=100_000)
    registry.execute(update(schema.streams).values(quarantined_at=None, next_start_at=later))
    assert driver_state(settings, registry).state == "waiting"
    streams.wish(registry, owner, streams.GENERATION, streams.DRAIN)
    assert driver_state(settings, registry).state == "drained"


def test_mirror_position_lag_and_age(settings, registry):
    ranges = ({0: OffsetRange(0, 60), 1: OffsetRange(0, 80)}, {0: OffsetRange(60, 100)})
    for version, covered in enumerate(ranges):
        counts = {p: len(r) for p, r in covered.items()}
        mirror_log.record(registry, "visits", mirror_log.Commit(version, "id-1", covered, counts, {}, 10))
    registry.execute(update(schema.mirror_commits).values(at=NOW - timedelta(seconds=30)))
    (mirror,) = read(settings, registry).mirrors
    assert (mirror.version, mirror.records, mirror.position, mirror.lag) == (1, 180, {0: 100, 1: 80}, 20)
    assert mirror.age_seconds == 30.0


def test_a_mirror_that_is_only_wished_for_is_shown(settings, registry):
    streams.wish(registry, "mirror-visits", streams.MIRROR, streams.RUN)
    (mirror,) = read(settings, registry).mirrors
    assert (mirror.topic, mirror.version, mirror.position, mirror.driver.state) == ("visits", None, {}, "dead")


def rewound(connection, **changes):
    made = plan(**changes)
    rewinds.open_rewind(connection, "rw-1", made)
    generations.create(connection, generation(2, lifecycle.CANDIDATE, handoff=None), "rw-1")
    return made


def done(connection, step, evidence=None, state="done"):
    attempt = rewinds.begin_step(connection, "rw-1", step)
    rewinds.end_step(connection, "rw-1", step, attempt, state, evidence)
    where = schema.steps.c.step == step
    connection.execute(update(schema.steps).where(where).values(started_at=NOW, ended_at=NOW + timedelta(seconds=2.5)))


def only_rewind(settings, connection):
    (found,) = read(settings, connection).pipeline("visits_converter").rewinds
    return found


def test_steps_of_a_rewind_in_order_with_attempts_and_times(settings, registry):
    deployed(registry)
    rewound(registry)
    done(registry, "plan")
    done(registry, "spin_up", {"error": "no room"}, "failed")
    done(registry, "spin_up", {"made": 3})
    rewinds.set_cpu(registry, "rw-1", "spin_up", 11.25)
    found = only_rewind(settings, registry)
    assert [step.name for step in found.steps] == list(SHAPES[REWIND].steps)
    spin_up = found.step("spin_up")
    assert (spin_up.state, spin_up.attempt, spin_up.seconds, spin_up.cpu_seconds) == ("done", 2, 2.5, 11.25)
    assert spin_up.evidence == {"made": 3}
    assert found.step("backfill").state == "pending"
    assert found.waits == ""


def test_a_failed_step_is_what_a_rewind_waits_for(settings, registry):
    deployed(registry)
    rewound(registry)
    done(registry, "backfill", {"error": "a gap"}, "failed")
    assert (
        only_rewind(settings, registry).waits
        == "backfill failed (attempt 1): a gap; abort_visits_converter takes it back"
    )


def test_backfill_progress_and_pause(settings, registry):
    deployed(registry)
    rewound(registry)
    rewinds.begin_step(registry, "rw-1", "backfill")
    cut = [{0: OffsetRange(0, 60), 1: OffsetRange(0, 40)}, {0: OffsetRange(60, 120), 1: OffsetRange(40, 80)}]
    chunk_log.add_wave(registry, "rw-1", 0, cut)
    chunk_log.finish(registry, "rw-1", 0, 90, 0)
    first = schema.chunks.c.number == 0
    registry.execute(update(schema.chunks).where(first).values(started_at=NOW - timedelta(seconds=10)))
    rewinds.set_controls(registry, "rw-1", paused=True, records_per_second=50)
    found = only_rewind(settings, registry)
    backfill = found.backfill
    assert (backfill.chunks_done, backfill.chunks, backfill.records_done) == (1, 2, 90)
    assert (backfill.offsets_done, backfill.offsets) == (100, 200)
    assert (backfill.rate, backfill.seconds_left) == (9.0, 10.0)
    assert (backfill.paused, backfill.records_per_second) == (True, 50)
    assert found.waits == "the backfill is paused; `python -m rewind resume rw-1` lets it go on"


def judged(connection, verdict, reason="", counts=None):
    done(connection, "validate")
    made = verdicts.Verdict(1, 1, verdict, {0: 0}, {0: BIG}, counts or {"rows": BIG}, [], reason, NOW)
    verdicts.store(connection, "rw-1", made)


@pytest.mark.parametrize(
    ("verdict", "waits"),
    [
        ("pass", "verdict pass: answer its approve task in Airflow"),
        ("fail", "verdict fail: answer its approve task in Airflow"),
        ("none", "verdict none (nothing was compared): answer its approve task in Airflow"),
        ("error", "the verdict is an error (no answer): fix the cause and clear validate"),
    ],
)
def test_a_verdict_waits_for_a_person(settings, registry, verdict, waits):
    deployed(registry)
    rewound(registry)
    judged(registry, verdict, "no answer")
    found = only_rewind(settings, registry)
    assert (found.verdict.verdict, found.waits, found.approval) == (verdict, waits, None)


def test_nothing_compared_needs_a_person_whatever_was_asked(settings, registry):
    deployed(registry)
    rewound(registry, auto_approve=True)
    judged(registry, "none")
    assert only_rewind(settings, registry).waits.startswith("verdict none (nothing was compared)")


def test_a_pass_that_needs_no_person_does_not_wait(settings, registry):
    deployed(registry)
    rewound(registry, auto_approve=True)
    judged(registry, "pass")
    assert only_rewind(settings, registry).waits == ""


def test_the_answer_is_shown(settings, registry):
    deployed(registry)
    rewound(registry)
    judged(registry, "pass")
    verdicts.answer(registry, "rw-1", "reject", "ada", "not today")
    found = only_rewind(settings, registry)
    assert (found.approval.answer, found.approval.person, found.approval.reason) == ("reject", "ada", "not today")
    assert found.waits == "it was rejected: abort it"


def test_what_was_found_since_the_switch_is_shown_of_ended_rewinds_too(settings, registry):
    deployed(registry)
    rewound(registry)
    assert only_rewind(settings, registry).observed is None
    look = observation.Look(timedelta(minutes=2), Frontier({0: BIG}), {"rows": BIG, "changed": 3}, {"changed": 3}, [])
    observation.record(registry, "rw-1", 1, look)
    rewinds.close(registry, "rw-1", lifecycle.FINISHED)
    found = read(settings, registry)
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(render.page(found))
    assert f"{BIG:,} rows compared since the switch, DIFFERENCES: 3 changed" in shown.export_text()
    body = json.loads(json.dumps(found.to_json()))["pipelines"][0]["rewinds"][0]["observed"]
    assert body == {"looks": 1, "after": 120.0, "rows": BIG, "differences": {"changed": 3}, "sample": [], "repeated": 0}


def test_only_the_last_five_ended_rewinds_are_shown(settings, registry):
    deployed(registry)
    for number in range(7):
        rewinds.open_rewind(registry, f"rw-{number}", plan())
        at = NOW + timedelta(minutes=number)
        registry.execute(update(schema.rewinds).where(schema.rewinds.c.id == f"rw-{number}").values(created_at=at))
        if number < 6:
            rewinds.close(registry, f"rw-{number}", lifecycle.FINISHED)
    found = read(settings, registry).pipeline("visits_converter").rewinds
    assert [rewind.id for rewind in found] == ["rw-6", "rw-5", "rw-4", "rw-3", "rw-2", "rw-1"]


def test_garbage_with_its_time_and_the_ledger(settings, registry):
    deployed(registry)
    generations.create(registry, generation(2, lifecycle.CANDIDATE), "rw-1")
    grace = timedelta(seconds=60)
    generations.switch(registry, "visits_converter", "visits_converter-g1", "visits_converter-g2", 1, grace)
    generations.set_grace(registry, "visits_converter-g1", NOW + grace)
    for kind, name in ((manifest.TOPIC, "visits_converted-g1"), (manifest.GROUP, "visits_converter-g1")):
        manifest.name(registry, "visits_converter-g1", kind, name)
    manifest.set_state(registry, "visits_converter-g1", manifest.GROUP, "visits_converter-g1", manifest.DELETED)
    gone = manifest.Entry(manifest.GROUP, "visits_converter-g1", None, manifest.DELETED)
    manifest.record(registry, "visits_converter-g1", gone, "deleted", "")
    found = read(settings, registry).pipeline("visits_converter")
    (garbage,) = found.garbage
    assert (garbage.job_id, garbage.due_at) == ("visits_converter-g1", NOW + grace)
    assert garbage.things == (("topic", "visits_converted-g1"),)
    assert garbage.waits == "kept for a rollback until 2025-09-04 12:01:00Z"
    generations.set_grace(registry, "visits_converter-g1", NOW)
    (garbage,) = read(settings, registry).pipeline("visits_converter").garbage
    assert garbage.waits == "due: the next run of collect_garbage takes it"
    generations.set_grace(registry, "visits_converter-g1", NOW + grace)
    assert [(d.kind, d.name, d.result) for d in found.deletions] == [("group", "visits_converter-g1", "deleted")]
    assert (found.live, found.epoch) == ("visits_converter-g2", 2)


def test_json_keeps_whole_numbers_exact_and_times_in_utc(settings, registry):
    deployed(registry)
    rewound(registry)
    judged(registry, "fail", "differs", {"rows": BIG, "missing": 1})
    body = json.loads(json.dumps(read(settings, registry).to_json()))
    assert body["at"] == "2025-09-04T12:00:00.000Z"
    (rewind,) = body["pipelines"][0]["rewinds"]
    assert rewind["verdict"]["counts"] == {"rows": BIG, "missing": 1}
    assert rewind["verdict"]["ceiling"] == {"0": BIG}
    assert rewind["plan"]["start"] == {"0": 0, "1": 0}
    assert body["pipelines"][0]["jobs"][0]["position"] == {"0": 10, "1": 5}


def test_reading_takes_no_lock(settings, registry):
    """A writer at work neither stops the view nor shows it what is not committed."""
    deployed(registry)
    registry.commit()
    with database.writing(settings.registry_url) as writer:
        generations.create(writer, generation(2, lifecycle.CANDIDATE), None)
        found = status.read(settings, FakeBroker(VISITS), NOW)
    assert [job.job_id for job in found.pipeline("visits_converter").jobs] == ["visits_converter-g1"]


def queries(settings):
    """Return how many queries a look takes."""
    found = []

    def count(*_):
        found.append(1)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        assert status.read(settings, page_load.Ends()).problems == ()
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    return len(found)


def test_a_look_at_many_pipelines_takes_as_many_queries_as_at_two(settings, make_settings, tmp_path):
    page_load.seed(settings, page_load.Load(2, 16, 40))
    other = make_settings(REWIND_HOME=str(tmp_path / "other"), REWIND_PIPELINES=str(tmp_path / "declared"))
    page_load.seed(other, page_load.Load(12, 120, 600))
    assert (queries(settings), queries(other)) == (30, 30)


def test_a_mirror_is_summed_up_from_the_commits_since_the_last_look(settings, registry):
    def commit(version, start, end, topic_id="id-1"):
        made = mirror_log.Commit(version, topic_id, {0: OffsetRange(start, end)}, {0: end - start}, {}, 10)
        mirror_log.record(registry, "visits", made)
        (mirror,) = read(settings, registry).mirrors
        return mirror.version, mirror.records, mirror.position

    assert commit(0, 0, 10) == (0, 10, {0: 10})
    assert commit(5, 30, 40) == (5, 20, {0: 40})
    # One that was recorded late, below what is known.
    assert commit(3, 10, 30) == (5, 40, {0: 40})
    registry.execute(schema.mirror_commits.delete().where(schema.mirror_commits.c.version == 5))
    assert commit(4, 30, 35) == (4, 35, {0: 35})
    assert commit(0, 0, 7, "id-2") == (0, 7, {0: 7})


def test_the_first_batch_with_the_watermark_is_found_among_many(settings, registry):
    deployed(registry)
    job = "visits_converter-g1"
    for number in range(1, 700):
        batch(registry, job, number, {"0": number}, 1, NOW - timedelta(seconds=2 * (700 - number)))
        closing = 0 if number < 3 else 10_000 + min(number, 123)
        mine = schema.progress.c.batch == number
        registry.execute(update(schema.progress).where(mine).values(closing_watermark=closing))
    (found,) = read(settings, registry).pipeline("visits_converter").jobs
    assert found.watermark.since == NOW - timedelta(seconds=2 * (700 - 123))
    assert found.watermark.stuck
