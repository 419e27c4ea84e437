"""Only the live job publishes, what it missed comes with it, and wherever a driver dies the next one converges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output
from rewind.adapters.delta_output import Write
from rewind.core import coordinates, crash, lifecycle, names
from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import DELTA, TOMBSTONE
from rewind.core.settings import Settings
from rewind.registry import database, generations, leases, publications
from rewind.registry.database import writing
from rewind.registry.publications import Counts
from rewind.runtime import tables
from rewind.steps.generation import allocate_shared
from rewind.steps.streaming.publish import Publisher
from tests.support import fakes

pytestmark = pytest.mark.full

SCHEMA = "k STRING, n BIGINT, at TIMESTAMP"
SHARED = replace(
    fakes.PIPELINE,
    stateful=True,
    output_format=DELTA,
    output_key=("k",),
    result_starts="at",
    shared=True,
    vanished=TOMBSTONE,
)
NAME, TABLE = SHARED.name, names.shared_output(SHARED.output_topic)


class Crash(BaseException):
    """The end of a driver: nothing catches it."""


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    made = make_settings()
    database.upgrade(made.registry_url)
    return made


@pytest.fixture
def jobs(spark: SparkSession, settings: Settings) -> tuple[Generation, Generation]:
    """g1, live at epoch 1, and its candidate g2, each with a table of its own; and the shared table."""
    made = []
    for number in (1, 2):
        job = fakes.generation(SHARED, number, state=lifecycle.CANDIDATE)
        job = replace(job, frozen={**job.frozen, "output_schema": SCHEMA, "epoch": number, "trusted_from": None})
        with writing(settings.registry_url) as connection:
            generations.create(connection, job, None if number == 1 else "rw-1")
            leases.take(connection, job.job_id, leases.this_driver())
            if number == 1:
                generations.set_first(connection, job.job_id)
        table_id = delta_output.create(spark, str(tables.path(settings, job.output_topic)), SCHEMA)
        tables.mark(settings, job.output_topic, table_id)
        made.append(job)
    allocate_shared.make(settings, made[0], SHARED, fakes.topic({0: 0}, {0: 0}))
    return made[0], made[1]


def write(spark: SparkSession, settings: Settings, job: Generation, batch: int, said: Mapping[str, int]) -> None:
    """Write a batch of a job: the number that it says of each key."""
    version = coordinates.version(job.frozen["epoch"], batch)
    told = {coordinates.JOB: job.job_id, coordinates.TOKEN: "1", coordinates.VERSION: version}
    origin = f"{job.topic_id}:0:{batch}-{batch}"
    headers = [
        F.struct(F.lit(name).alias("key"), F.lit(text).cast("binary").alias("value"))
        for name, text in {**told, coordinates.SPAN: origin}.items()
    ]
    frame = spark.createDataFrame(list(said.items()), "k string, n bigint")
    rows = frame.select(
        F.col("k").cast("binary").alias("key"),
        F.lit(b"{}").alias("value"),
        F.array(*headers).alias("headers"),
        F.struct("k", "n", F.timestamp_millis(F.lit(0)).alias("at")).alias("fields"),
    )
    made = Write(f"{job.job_id}-stream", batch, batch, {0: OffsetRange(batch, batch + 1)})
    delta_output.write(rows, str(tables.path(settings, job.output_topic)), made)


def publisher(spark: SparkSession, settings: Settings, job: Generation) -> Publisher:
    guard: Any = SimpleNamespace(token=1)
    return Publisher(spark, settings, job, SHARED, guard)


def shared(spark: SparkSession, settings: Settings) -> dict[str, tuple[int | None, int, int]]:
    """Return what the shared table says of each key, with epoch and batch of its version."""
    rows = spark.read.format("delta").load(str(tables.path(settings, TABLE))).collect()
    assert len({bytes(row["_key"]) for row in rows}) == len(rows)
    return {
        bytes(row["_key"]).decode(): (
            None if row["_tombstone"] else row["n"],
            *(int(part) for part in row["_version"].split("-")),
        )
        for row in rows
    }


def told(settings: Settings, epoch: int) -> tuple[int | None, Counts] | None:
    """Return up to which batch all is published at an epoch, and what that did."""
    with writing(settings.registry_url) as connection:
        found = publications.find(connection, NAME, epoch)
    return None if found is None else (found.batch, found.counts)


def test_a_life(
    spark: SparkSession,
    settings: Settings,
    jobs: tuple[Generation, Generation],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new = jobs
    write(spark, settings, old, 0, {"a": 1, "gone": 1})
    mine = publisher(spark, settings, old)
    mine.publish(0)
    assert shared(spark, settings) == {"a": (1, 1, 0), "gone": (1, 1, 0)}

    # Two batches that were missed and one that is not committed.
    for batch, said in enumerate(({"a": 2, "b": 2}, {"b": 3}, {"b": 4}), start=1):
        write(spark, settings, old, batch, said)
    mine.publish(2)
    held = {"a": (2, 1, 1), "b": (3, 1, 2), "gone": (1, 1, 0)}
    assert shared(spark, settings) == held
    assert told(settings, 1) == (2, Counts(written=4))

    # A candidate publishes nothing.
    write(spark, settings, new, 0, {"a": 7})
    write(spark, settings, new, 1, {"b": 8, "c": 8})
    other = publisher(spark, settings, new)
    other.publish(1)
    assert shared(spark, settings) == held
    assert told(settings, 2) is None

    # It is live, and its driver dies on the way, at every place there is.
    with writing(settings.registry_url) as connection:
        generations.switch(connection, NAME, old.job_id, new.job_id, 1, timedelta(hours=1))
    for point in ("before:shared.merge", "after:shared.merge"):
        with monkeypatch.context() as patched:
            patched.setattr(crash, "_reach", lambda reached, point=point: _die(reached, point))
            with pytest.raises(Crash):
                other.publish(1)
        mine.publish(3)
        assert told(settings, 2) == (None, Counts())
    other.publish(1)
    assert shared(spark, settings) == {"a": (7, 2, 0), "b": (8, 2, 1), "c": (8, 2, 1), "gone": (None, 2, 1)}
    assert told(settings, 2) == (1, Counts(written=0, repeated=4, vanished=1))


def _die(reached: str, point: str) -> None:
    if reached == point:
        raise Crash


def test_a_shared_output_that_another_stands_for_is_refused(
    spark: SparkSession, settings: Settings, jobs: tuple[Generation, Generation]
) -> None:
    tables.mark(settings, TABLE, "another")
    with pytest.raises(RefusedError, match=f"{TABLE} of {NAME} is gone, or another stands under its name"):
        publisher(spark, settings, jobs[0])
