"""One output whichever job is live: a whole life of it, and drawn histories of a topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rewind
from rewind.adapters import kafka
from rewind.adapters.shared_topic import SharedTopic
from rewind.control import generations, leases, publications, rewinds, tables
from rewind.control.broker import Broker
from rewind.control.publications import Counts
from rewind.core import coordinates, lifecycle
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.steps import share
from rewind.steps.publish import Publisher
from rewind.transforms import merging
from tests.scenarios import histories
from tests.scenarios.histories import Write
from tests.steps.test_stateful import produce, visits
from tests.support import fakes
from tests.support.workshop import Workshop, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_800)]


@dataclass(frozen=True)
class Answer:
    """What an output says of a window: its count, None once it was deleted, and by which version of which job."""

    count: int | None
    version: str
    job: str


Held = Mapping[str, Answer]
Reader = Callable[[Workshop, str], Held]
ALSO = {"shared": True, "vanished": "tombstone"}


def in_topic(shop: Workshop, name: str) -> Held:
    """Return the last record of every key of a topic; of no key it may be older than one before it."""
    last: dict[str, Answer] = {}
    for record in shop.read(name):
        assert record.key is not None
        count = None if record.value is None else json.loads(record.value)["count"]
        found = Answer(count, record.headers[coordinates.VERSION], record.headers[coordinates.JOB])
        key = json.loads(record.key)["window_start"]
        assert key not in last or last[key].version <= found.version
        last[key] = found
    return last


def in_table(spark: SparkSession, shop: Workshop, name: str) -> Held:
    """Return the newest row of every key of a table; a shared one has no other."""
    rows = spark.read.format("delta").load(str(tables.path(shop.settings, name))).collect()
    newest: dict[str, Answer] = {}
    for row in sorted(rows, key=lambda row: str(row["_headers"][coordinates.VERSION])):
        key = json.loads(bytes(row["_key"]))["window_start"]
        assert not (key in newest and name.endswith("-shared"))
        headers = row["_headers"]
        count = None if row["_tombstone"] else row["count"]
        newest[key] = Answer(count, headers[coordinates.VERSION], headers[coordinates.JOB])
    return newest


def counts(held: Held) -> dict[str, int]:
    """Return the windows that an output answers for."""
    return {key: answer.count for key, answer in held.items() if answer.count is not None}


def published(shop: Workshop, job: str, read: Reader) -> publications.Publication:
    """Wait until a job has published all it has written, and return what is recorded of that."""
    found: list[publications.Publication] = []

    def done() -> bool:
        shop.look(job)
        with shop.registry() as connection:
            live = generations.live(connection, shop.pipeline)
            assert live is not None
            seen = publications.find(connection, shop.pipeline, live[1])
        newest = max(answer.version for answer in read(shop, own(shop, job)).values())
        if seen is None or seen.batch is None or seen.batch < int(newest[-19:]):
            return False
        found.append(seen)
        return True

    wait_for(f"{job} published", done)
    return found[0]


def own(shop: Workshop, job: str) -> str:
    """Return the name of a job's own output."""
    return f"{shop.pipeline}-out-g{job[-1]}"


# --- drawn histories


def rows(spark: SparkSession, writes: list[Write]) -> DataFrame:
    """Return writes as versioned rows of a topic."""
    frame = spark.createDataFrame(
        [(w.key, w.version, w.value) for w in writes], "k string, version string, said string"
    )
    told = {
        coordinates.JOB: F.lit("out-g1"),
        coordinates.TOKEN: F.lit("1"),
        coordinates.VERSION: F.col("version"),
        coordinates.SPAN: F.lit(f"{fakes.TOPIC_ID}:0:5-5"),
    }
    headers = [F.struct(F.lit(k).alias("key"), v.cast("binary").alias("value")) for k, v in told.items()]
    return frame.repartition(2).select(
        F.col("k").cast("binary").alias("key"),
        "version",
        F.col("said").cast("binary").alias("content"),
        F.array(*headers).cast("array<struct<key:string,value:binary>>").alias("headers"),
    )


def last_records(shop: Workshop, name: str) -> dict[str, Write]:
    """Return the last record of every key of a topic."""
    last: dict[str, Write] = {}
    for record in shop.read(name):
        key, value = (None if text is None else text.decode() for text in (record.key, record.value))
        assert key is not None
        last[key] = Write(key, record.headers[coordinates.VERSION], value)
    return last


def merge_all(spark: SparkSession, settings: Settings, shop: Workshop, steps: list[list[Write]]) -> Counts:
    """Merge steps into a topic, hold each count and the topic in the end against the oracle, and return the sums."""
    name = f"{shop.pipeline}-shared"
    source = Broker(settings).topic(shop.topic)
    assert source is not None
    Broker(settings).create_topic(name, source, 3, cleanup="compact")
    topic, oracle, sums = SharedTopic(spark, settings, name), histories.Newest(), Counts()
    for step in steps:
        found = topic.merge(merging.newest(rows(spark, step)), None)
        assert found == oracle.merge(step)
        sums = histories.added(sums, found)
    assert last_records(shop, name) == oracle.held
    return sums


def test_drawn_histories_of_a_topic(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    shop = workshop("drawn_topic", 3)
    sums = merge_all(spark, shop.settings, shop, histories.drawn(seed=11, count=50, steps=5))
    assert min(sums.written, sums.repeated, sums.stale) > 0


def test_what_was_written_meanwhile_is_known_from_where_the_topic_ended(
    workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shop = workshop("drawn_since", 1)
    merge_all(spark, shop.settings, shop, [[Write("a", "1-1", "x"), Write("b", "1-1", "x")]])
    topic = SharedTopic(spark, shop.settings, "drawn_since-shared")
    since = topic.place()
    # A driver died after it had sent one of two.
    topic.merge(rows(spark, [Write("a", "1-2", "y")]), since)
    assert topic.merge(rows(spark, [Write("a", "1-2", "y"), Write("b", "1-2", "y")]), since) == Counts(1, 1)
    versions = [(record.key, record.headers[coordinates.VERSION]) for record in shop.read("drawn_since-shared")]
    assert sorted(versions) == [(b"a", "1-1"), (b"a", "1-2"), (b"b", "1-1"), (b"b", "1-2")]


def test_what_a_job_writes_meanwhile_is_published_with_its_next_batch(
    workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shop = workshop("staged_topic", 1)
    settings, declared = shop.settings, replace(fakes.PIPELINE, name="staged_topic", output_topic="staged_topic-out")
    pipeline = replace(declared, stateful=True, result_starts="at", shared=True, vanished="tombstone")
    source = Broker(settings).topic(shop.topic)
    assert source is not None
    jobs = []
    for number in (1, 2):
        job = fakes.generation(pipeline, number, state=lifecycle.CANDIDATE, start={0: 5})
        jobs.append(replace(job, frozen={**job.frozen, "epoch": number, "trusted_from": None}))
        with shop.registry() as connection:
            generations.create(connection, jobs[-1], None if number == 1 else "rw-1")
            leases.take(connection, job.job_id, leases.this_driver())
            if number == 1:
                generations.set_first(connection, job.job_id)
        Broker(settings).create_topic(job.output_topic, source, 2, cleanup="delete")
    share.make(settings, jobs[0], pipeline, source)
    guard: Any = SimpleNamespace(token=1)

    def write(job: Generation, batch: int, *keys: str) -> None:
        version = coordinates.version(job.frozen["epoch"], batch)
        made = rows(spark, [Write(key, version, f"{batch}") for key in keys]).withColumnRenamed("content", "value")
        kafka.write(made.withColumn("topic", F.lit(job.output_topic)).drop("version"), settings, {})

    def shared() -> dict[str, str]:
        held = last_records(shop, "staged_topic-out-shared").values()
        return {w.key: f"{w.value}@{int(w.version[:10])}-{int(w.version[11:])}" for w in held}

    old, new = (Publisher(spark, settings, job, pipeline, guard) for job in jobs)
    write(jobs[0], 0, "a", "gone")
    write(jobs[0], 1, "b")
    old.publish(0)
    assert shared() == {"a": "0@1-0", "gone": "0@1-0"}
    write(jobs[0], 1, "a", "c")
    old.publish(1)
    assert shared() == {"a": "1@1-1", "b": "1@1-1", "c": "1@1-1", "gone": "0@1-0"}
    write(jobs[1], 0, "a", "b", "c")
    with shop.registry() as connection:
        generations.switch(connection, "staged_topic", jobs[0].job_id, jobs[1].job_id, 1, timedelta(hours=1))
    old.publish(2)
    new.publish(0)
    assert shared() == {"a": "0@2-0", "b": "0@2-0", "c": "0@2-0", "gone": "None@2-0"}
    with shop.registry() as connection:
        found = [publications.find(connection, "staged_topic", epoch) for epoch in (1, 2)]
    assert [publication and publication.counts for publication in found] == [
        Counts(written=5),
        Counts(written=4, vanished=1),
    ]


# --- a whole life


def test_a_life_of_a_shared_topic(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("sharing", 2, like="visits_window_counter", output_also=ALSO)
    live_through(shop, in_topic)
    # What the aborted one wrote never came here, not even to be overwritten.
    assert {record.headers[coordinates.JOB] for record in shop.read("sharing-out-shared")} == {
        "sharing-g1",
        "sharing-g3",
    }


def life_of_a_shared_table(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    """Live the same life on Delta: an acceptance test, for its length."""
    shop = workshop("sharing_rows", 2, like="visits_window_counter", form="table", output_also=ALSO)
    live_through(shop, lambda of, name: in_table(spark, of, name))


def live_through(shop: Workshop, read: Reader) -> None:
    """Deploy, abort a candidate, cut over to another, and roll back; readers see what the live job answers."""
    shared, (old, aborted, new) = f"{shop.pipeline}-out-shared", (f"{shop.pipeline}-g{n}" for n in (1, 2, 3))
    events: dict[int, list[int]] = {0: [], 1: []}
    assert shop.deploy() == old
    assert rewind.resolve(shop.pipeline, shop.settings.registry_url).output_topic == shared
    for owner in (old, shop.mirror):
        shop.start(owner)
    produce(shop, events, visits(1, 300, 0))
    shop.caught_up(old)
    assert published(shop, old, read).epoch == 1
    first = read(shop, shared)
    assert first == read(shop, own(shop, old))
    shop.caught_up(shop.mirror)

    # The code forgets a window. A candidate that is aborted leaves no trace.
    gone = sorted(first)[2]
    left_out = f"date_format(event_time, 'HH:mm') not like '{gone[11:15]}%'"
    shop.edit_logic("visits.withWatermark", f'visits.where("{left_out}").withWatermark')
    backfilled(shop, "rw-gone")
    assert read(shop, own(shop, aborted))
    shop.run("abort", "--rewind-id", "rw-gone", "--reason", "second thoughts")
    assert read(shop, shared) == first

    # Another goes live: its answers take the place of the old job's, and what it lacks is deleted.
    backfilled(shop, "rw-taken")
    shop.start(new)
    shop.caught_up(new)
    shop.step("validate", "rw-taken")
    shop.approve("rw-taken", "the window was wrong")
    shop.step("cut_over", "rw-taken")
    taken = read(shop, shared)
    assert {answer.version[:10] for answer in taken.values()} == {"0000000002"}
    assert counts(taken) == counts(read(shop, own(shop, new)))
    assert (taken[gone].count, counts(first)[gone] > 0) == (None, True)
    with shop.registry() as connection:
        (evidence,) = (
            s.evidence["published"] for s in rewinds.steps_of(connection, "rw-taken") if s.step == "cut_over"
        )
    assert (evidence["epoch"], evidence["stale"], evidence["vanished"]) == (2, 0, 1)

    # Both go on; readers see the live one's answers.
    produce(shop, events, visits(2, 300, 300))
    for job in (old, new):
        shop.caught_up(job)
    assert published(shop, new, read).counts.stale == 0
    later = read(shop, shared)
    assert counts(later) == counts(read(shop, own(shop, new)))
    assert len(counts(later)) > len(counts(taken))
    assert {answer.job for answer in later.values() if answer.count is not None} == {new}

    # And back: the old job's answers are there again, those of the window too.
    asked = json.dumps({"dry_run": False, "reason": "it was right"})
    shop.run("rollback", "--rollback-id", f"rb-{shop.pipeline}", "--pipeline", shop.pipeline, "--request", asked)
    back = read(shop, shared)
    assert {answer.version[:10] for answer in back.values()} == {"0000000003"}
    assert counts(back) == counts(read(shop, own(shop, old)))
    assert gone in counts(back)


def backfilled(shop: Workshop, rewind_id: str) -> None:
    """Make the candidate of a rewind from the earliest record."""
    shop.planned(rewind_id, **{"from": "earliest"})
    for step in ("spin_up", "backfill"):
        shop.step(step, rewind_id)
