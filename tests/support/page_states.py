"""Registries in the states that the page has to tell apart, seeded without any stream or broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, insert, update

from rewind.core import lifecycle
from rewind.core.model import Generation, Topic
from rewind.core.nights import Night, Sample
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import Pipeline
from rewind.core.planning.plan import Difference, Plan, Request, sealed
from rewind.core.planning.stages import REWIND
from rewind.core.settings import Settings
from rewind.registry import (
    chunk_log,
    database,
    generations,
    leases,
    manifest,
    nightly_replays,
    rewinds,
    schema,
    streams,
    verdicts,
)
from rewind.registry.database import now
from rewind.registry.mirrors import mirror_log
from rewind.registry.mirrors.mirror_log import Commit

NAME, TOPIC, TOPIC_ID, REWIND_ID = "visits", "clicks", "id-1", "rw-0123456789"
LIVE, CANDIDATE = f"{NAME}-g1", f"{NAME}-g2"
YAML = "source: {topic: clicks, schema: 'a STRING'}\noutput: {topic: visits_out}\n"
NIGHT = datetime(2025, 9, 4, 2, 30, tzinfo=UTC)
BIG = 9_007_199_254_740_993
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
CONFIG = Pipeline(NAME, TOPIC, "a STRING", "visits_out", lag_gate=500).frozen()


def declare(settings: Settings, name: str = NAME) -> None:
    """Declare a pipeline."""
    folder = settings.pipelines / name
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(YAML)
    (folder / "logic.py").write_text("")


def generation(number: int) -> Generation:
    job = f"{NAME}-g{number}"
    frozen = {"config": CONFIG, "versions": {"pyspark": "4.2.0"}}
    made = Generation(job, NAME, lifecycle.CANDIDATE, TOPIC_ID, f"b{number}", frozen, {0: 0, 1: 0}, None, "", "")
    return replace(made, output_topic=f"visits_out-g{number}", dead_letter_topic=f"visits_out-g{number}-dead")


def plan(**asked: Any) -> Plan:
    made = Plan(
        kind=REWIND,
        request=Request(NAME, observe_seconds=600, **asked),
        job_id=CANDIDATE,
        live_job_id=LIVE,
        epoch=1,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        start={0: 0, 1: 0},
        end={0: BIG, 1: 8_000},
        mirror_version=3,
        records=20_000,
        bytes=900_000,
        chunks=4,
        estimate_seconds=30.0,
        differences=(Difference("max_offsets", "200000", "50000"),),
        config=CONFIG,
        bundle="b2",
        output_schema="a STRING",
        output_topic="visits_out-g2",
        dead_letter_topic="visits_out-g2-dead",
    )
    return sealed(made)


def deployed(connection: Connection) -> None:
    """Make generation 1 live, its stream wished for and never started."""
    generations.create(connection, generation(1), None)
    generations.set_first(connection, LIVE)
    generations.set_handoff(connection, LIVE, {0: 0, 1: 0})
    streams.wish(connection, LIVE, streams.GENERATION, streams.RUN)
    own(connection, LIVE, 1)
    mirrored = {0: OffsetRange(0, 12_000), 1: OffsetRange(0, 8_000)}
    mirror_log.record(connection, TOPIC, Commit(3, TOPIC_ID, mirrored, {0: 12_000, 1: 8_000}, {}, 900_000))


def own(connection: Connection, job: str, number: int) -> None:
    manifest.name(connection, job, manifest.TOPIC, f"visits_out-g{number}")
    manifest.made(connection, job, manifest.TOPIC, f"visits_out-g{number}", f"topic-{number}")
    manifest.name(connection, job, manifest.GROUP, job)


def ran(connection: Connection, job: str, batches: int, step: int, end: int = 0) -> None:
    """Record batches of a stream, one each two seconds up to now, `step` offsets each in both partitions."""
    for number in range(batches):
        at = now() - timedelta(seconds=2 * (batches - 1 - number))
        upto = end + step * (number + 1)
        values = {"owner": job, "batch": number, "token": 1, "start": {}, "rows": 2 * step, "at": at}
        values |= {"end": {"0": upto, "1": upto}, "closing_watermark": 1_757_000_000_000 + number * 1_000}
        connection.execute(insert(schema.progress).values(**values))


def begun(connection: Connection, **asked: Any) -> None:
    """Open the rewind, planned and with its candidate made."""
    rewinds.open_rewind(connection, REWIND_ID, plan(**asked))
    done(connection, "plan")
    generations.create(connection, generation(2), REWIND_ID)
    own(connection, CANDIDATE, 2)
    done(connection, "spin_up")


def done(connection: Connection, step: str, state: str = "done", evidence: Any = None) -> None:
    rewinds.end_step(connection, REWIND_ID, step, rewinds.begin_step(connection, REWIND_ID, step), state, evidence)


def backfilling(connection: Connection) -> None:
    """Half of a backfill of two chunks is done."""
    rewinds.begin_step(connection, REWIND_ID, "backfill")
    cut = [{0: OffsetRange(0, 6_000), 1: OffsetRange(0, 4_000)}, {0: OffsetRange(6_000, 12_000)}]
    chunk_log.add_wave(connection, REWIND_ID, 0, cut)
    chunk_log.finish(connection, REWIND_ID, 0, 9_500, 0)
    early = {"started_at": now() - timedelta(seconds=10), "ended_at": now()}
    connection.execute(update(schema.chunks).where(schema.chunks.c.number == 0).values(**early))


def backfilled(connection: Connection) -> None:
    backfilling(connection)
    chunk_log.finish(connection, REWIND_ID, 1, 6_000, 0)
    rewinds.end_step(connection, REWIND_ID, "backfill", 1, "done", {"chunks": 2})
    rewinds.fix(connection, REWIND_ID, "handoff", {"0": 12_000, "1": 4_000})
    generations.set_handoff(connection, CANDIDATE, {0: 12_000, 1: 4_000})
    done(connection, "start_candidate")
    streams.wish(connection, CANDIDATE, streams.GENERATION, streams.RUN)


def racing(connection: Connection) -> None:
    ran(connection, LIVE, 30, 20, 12_000)
    ran(connection, CANDIDATE, 25, 22, 12_000)


def judged(connection: Connection, verdict: str = "pass", reason: str = "") -> None:
    done(connection, "catch_up")
    done(connection, "validate")
    counts = {"equal": BIG, "changed": 3 if verdict == "fail" else 0} if verdict != "none" else {"rows": 0}
    made = verdicts.Verdict(1, 1, verdict, {0: 0, 1: 0}, {0: BIG, 1: 9}, counts, [{"a": HOSTILE}], reason, now())
    verdicts.store(connection, REWIND_ID, made)
    rewinds.begin_step(connection, REWIND_ID, "approve")


def switched(connection: Connection) -> None:
    verdicts.answer(connection, REWIND_ID, "approve", "ada", "")
    rewinds.end_step(connection, REWIND_ID, "approve", 1, "done", {"person": "ada"})
    generations.switch(connection, NAME, LIVE, CANDIDATE, 1, timedelta(hours=1))
    generations.set_grace(connection, LIVE, now() + timedelta(hours=1))
    done(connection, "cut_over")
    rewinds.begin_step(connection, REWIND_ID, "observe")


def quarantined(connection: Connection) -> None:
    failed = {"quarantined_at": now(), "failures": 5, "last_failure": "exit code 1"}
    connection.execute(update(schema.streams).where(schema.streams.c.owner == CANDIDATE).values(**failed))


def aborted(connection: Connection) -> None:
    generations.move(connection, CANDIDATE, lifecycle.ABORTED)
    rewinds.close(connection, REWIND_ID, lifecycle.ABORTED)
    for entry in manifest.read(connection, CANDIDATE):
        manifest.set_state(connection, CANDIDATE, entry.kind, entry.name, manifest.DELETED)
        manifest.record(connection, CANDIDATE, entry, "deleted", "")


def alive(connection: Connection) -> None:
    """Live's driver is this process."""
    leases.take(connection, LIVE, leases.this_driver())


def orphaned(connection: Connection) -> None:
    """Of live's driver only the JVM is left, for which this process stands."""
    this = leases.this_driver()
    gone = leases.Process(2**22 + 1, 7)
    leases.take(connection, LIVE, replace(this, processes=(gone, this.processes[0])))


def stuck(connection: Connection) -> None:
    """Records come in, but for five minutes none of later event time."""
    for number in range(30):
        at = now() - timedelta(seconds=10 * (29 - number))
        values = {"owner": LIVE, "batch": number, "token": 1, "start": {}, "rows": 40, "at": at}
        values |= {"end": {"0": 12_000 + number, "1": 12_000}, "closing_watermark": 1_757_000_000_000}
        connection.execute(insert(schema.progress).values(**values))


def hostile(connection: Connection) -> None:
    """Put a text that would take the page over into every field that holds what people or other systems wrote."""
    for table, columns in HOSTILE_FIELDS.items():
        connection.execute(update(schema.metadata.tables[table]).values(dict.fromkeys(columns, HOSTILE)))
    evidence = {"error": HOSTILE, HOSTILE: [HOSTILE]}
    connection.execute(update(schema.steps).values(evidence=evidence))
    judged = {"counts": {HOSTILE: 3}, "sample": [{HOSTILE: HOSTILE}]}
    connection.execute(update(schema.verdicts).values(**judged))
    written = plan(reason=HOSTILE)
    written = replace(written, differences=(Difference(HOSTILE, HOSTILE, HOSTILE),), warnings=(HOSTILE,))
    connection.execute(update(schema.plans).values(body=written.to_json()))
    frozen = {"config": {**CONFIG, "schema": HOSTILE}, "versions": {HOSTILE: HOSTILE}}
    connection.execute(update(schema.generations).values(frozen=frozen))


def replayed(connection: Connection, state: str = "drifted") -> None:
    """Three nights: one without a run, one as it was, and one of a state."""
    first, day = NIGHT, timedelta(days=1)
    made = [Night(NAME, first + n * day, first + (n + 1) * day, f"2025-09-0{4 + n}", Sample()) for n in range(3)]
    nightly_replays.miss(connection, made[0], {0: OffsetRange(0, 5)}, "r0", "no run came")
    one = nightly_replays.begin(connection, made[1], {0: OffsetRange(5, 90)}, "r1", LIVE)
    nightly_replays.finish(connection, one.replay_id, "consistent", "", {"rows": 85, "equal": 85}, {}, None)
    last = nightly_replays.begin(connection, made[2], {0: OffsetRange(90, 100)}, "r2", LIVE)
    if state == "running":
        return
    fields = {"changed": {"visited_page": 3}} if state == "drifted" else {}
    reason = f"3 changed {HOSTILE}" if state == "drifted" else HOSTILE
    nightly_replays.finish(connection, last.replay_id, state, reason, {"rows": 10, "changed": 3}, fields, None)


HOSTILE_FIELDS = {
    "rewinds": ["reason"],
    "verdicts": ["reason"],
    "approvals": ["person", "reason"],
    "streams": ["last_failure"],
    "deletions": ["detail", "name"],
    "manifest": ["resource_id"],
    "generations": ["output_topic", "dead_letter_topic", "bundle"],
}


def _catching_up(connection: Connection) -> None:
    rewinds.begin_step(connection, REWIND_ID, "catch_up")


def _paused(connection: Connection) -> None:
    rewinds.set_controls(connection, REWIND_ID, paused=True, records_per_second=None)


Seed = Callable[[Connection], None]
STATES: dict[str, tuple[Seed, ...]] = {
    "nothing deployed": (),
    "deployed": (deployed,),
    "running": (deployed, alive),
    "orphan": (deployed, orphaned),
    "stuck watermark": (deployed, alive, stuck),
    "paused": (deployed, alive, begun, backfilling, _paused),
    "planned": (deployed, begun),
    "backfilling": (deployed, begun, backfilling),
    "catching up": (deployed, begun, backfilled, racing, _catching_up),
    "quarantined": (deployed, begun, backfilled, _catching_up, quarantined),
    "passed": (deployed, begun, backfilled, racing, judged),
    "failed verdict": (deployed, replayed, begun, backfilled, racing, lambda c: judged(c, "fail", HOSTILE)),
    "error verdict": (deployed, begun, backfilled, lambda c: judged(c, "error", "nothing was compared")),
    "nothing compared": (deployed, begun, backfilled, lambda c: judged(c, "none", f"nothing was compared: {HOSTILE}")),
    "paused DAG": (deployed, lambda c: streams.note_pause(c, LIVE, f"stream_{NAME}")),
    "failed step": (deployed, begun, lambda c: done(c, "backfill", "failed", {"error": "a gap at offset 7"})),
    "standby": (deployed, begun, backfilled, racing, judged, switched),
    "drifted night": (deployed, alive, replayed),
    "night without an answer": (deployed, alive, lambda c: replayed(c, "error")),
    "running night": (deployed, alive, lambda c: replayed(c, "running")),
    "aborted": (deployed, begun, backfilled, aborted),
}


def seed(settings: Settings, state: str) -> None:
    """Put a new registry into a state."""
    database.upgrade(settings.registry_url)
    with database.writing(settings.registry_url) as connection:
        for one in STATES[state]:
            one(connection)


class Ends:
    """A broker that knows one topic."""

    def topic(self, name: str) -> Topic | None:
        return Topic(TOPIC, TOPIC_ID, {0: 0, 1: 0}, {0: 12_700, 1: 12_700}) if name == TOPIC else None
