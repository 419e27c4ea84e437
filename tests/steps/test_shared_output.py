"""One output whichever job is live: a whole life of it, and drawn histories of a topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewind.adapters import kafka
from rewind.adapters.shared_topic import SharedTopic
from rewind.core import coordinates, lifecycle
from rewind.core.model import Generation
from rewind.registry import generations, leases, publications
from rewind.registry.publications import Counts
from rewind.runtime.kafka.broker import Broker
from rewind.steps.generation import allocate_shared
from rewind.steps.streaming.publish import Publisher
from tests.scenarios import histories
from tests.scenarios.histories import Write
from tests.scenarios.shared_histories import held_by_topic, merged_into_topic, rows_of_topic
from tests.scenarios.shared_life import LIFE, SHARED, in_topic, live_through
from tests.support import fakes
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(1_800)]


# --- drawn histories


def test_drawn_histories_of_a_topic(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    shop = workshop("drawn_topic", 3)
    sums = merged_into_topic(spark, shop, histories.drawn(seed=11, count=50, steps=5))
    assert min(sums.written, sums.repeated, sums.stale) > 0


def test_what_was_written_meanwhile_is_known_from_where_the_topic_ended(
    workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shop = workshop("drawn_since", 1)
    merged_into_topic(spark, shop, [[Write("a", "1-1", "x"), Write("b", "1-1", "x")]])
    topic = SharedTopic(spark, shop.settings, "drawn_since-shared")
    since = topic.place()
    # A driver died after it had sent one of two.
    topic.merge(rows_of_topic(spark, [Write("a", "1-2", "y")]), since)
    assert topic.merge(rows_of_topic(spark, [Write("a", "1-2", "y"), Write("b", "1-2", "y")]), since) == Counts(1, 1)
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
    allocate_shared.make(settings, jobs[0], pipeline, source)
    guard: Any = SimpleNamespace(token=1)

    def write(job: Generation, batch: int, *keys: str) -> None:
        version = coordinates.version(job.frozen["epoch"], batch)
        staged = rows_of_topic(spark, [Write(key, version, f"{batch}") for key in keys]).drop("version")
        made = staged.withColumnRenamed("content", "value").withColumn("topic", F.lit(job.output_topic))
        kafka.write(made, settings, {})

    def shared() -> dict[str, str]:
        held = held_by_topic(shop, "staged_topic-out-shared").values()
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


@pytest.mark.shows("stateful", shared_topic=LIFE)
def test_a_life_of_a_shared_topic(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("sharing", 2, like="visits_window_counter", output_also=SHARED)
    live_through(shop, in_topic)
    # What the aborted one wrote never came here, not even to be overwritten.
    assert {record.headers[coordinates.JOB] for record in shop.read("sharing-out-shared")} == {
        "sharing-g1",
        "sharing-g3",
    }
