"""Output tables: each write lands once, and what does not land is an error (case C01)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output, sinks
from rewind.adapters.delta_output import Write
from rewind.core.errors import IntegrityError
from rewind.core.offsets import OffsetRange
from rewind.runtime import tables
from rewind.transforms.values import parsing
from tests.support import fakes

SCHEMA = "`page` string, `at` timestamp"


def rows(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    """Return encoded rows of as many source offsets."""
    frame = spark.range(first, first + count)
    headers = F.array(
        F.struct(F.lit("rewind-job").alias("key"), F.lit(b"out-g1").alias("value")),
        F.struct(F.lit("rewind-source").alias("key"), F.concat(F.lit("T:0:"), "id").cast("binary").alias("value")),
    )
    fields = F.struct(F.concat(F.lit("page-"), "id").alias("page"), F.timestamp_millis("id").alias("at"))
    return frame.select(
        F.lit("out").alias("topic"),
        F.lit(b"k").alias("key"),
        F.lit(b"{}").alias("value"),
        headers.alias("headers"),
        fields.alias("fields"),
    )


def made(number: int, application: str = "out-g1-stream-q1", size: int = 10, ends: int | None = None) -> Write:
    end = (number + 1) * size if ends is None else ends
    return Write(application, number, number, {0: OffsetRange(number * size, end)})


@pytest.fixture(scope="module")
def empty(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An output table of which each test gets a copy."""
    path = str(tmp_path_factory.mktemp("empty") / "out")
    delta_output.create(session, path, SCHEMA)
    return path


@pytest.fixture
def table(empty: str, tmp_path: Path) -> str:
    return str(shutil.copytree(empty, tmp_path / "out"))


def count(spark: SparkSession, path: str) -> int:
    return spark.read.format("delta").load(path).count()


@pytest.mark.shows("stateful", c01_rows_after_a_fresh_checkpoint_and_a_replay=50)
def test_c01_a_fresh_checkpoint_has_an_id_of_its_own_and_a_repeat_lands_once(spark: SparkSession, table: str) -> None:
    for number in range(2):
        delta_output.write(rows(spark, 20, number * 20), table, made(number, size=20))
    for number in range(2):
        delta_output.write(rows(spark, 5, number * 5), table, made(number, "out-g1-stream-q2", size=5))
    assert count(spark, table) == 50
    delta_output.write(rows(spark, 5, 5), table, made(1, "out-g1-stream-q2", size=5))
    assert count(spark, table) == 50


@pytest.mark.shows("stateful", c01_same_id_with_other_offsets="an error")
def test_c01_a_write_under_an_id_that_the_table_holds_with_other_offsets_is_an_error(
    spark: SparkSession, table: str
) -> None:
    for number in range(2):
        delta_output.write(rows(spark, 10, number * 10), table, made(number))
    with pytest.raises(IntegrityError, match=r"write 1 of out-g1-stream-q1 did not land"):
        delta_output.write(rows(spark, 5), table, made(1, ends=15))
    assert count(spark, table) == 20


def test_a_write_whose_number_was_passed_over_is_an_error(spark: SparkSession, table: str) -> None:
    delta_output.write(rows(spark, 10), table, made(0))
    delta_output.write(rows(spark, 10), table, made(2))
    with pytest.raises(IntegrityError, match="did not land"):
        delta_output.write(rows(spark, 10), table, made(1))


def test_a_write_without_rows_is_none_that_is_missing(spark: SparkSession, table: str) -> None:
    delta_output.write(rows(spark, 0), table, made(0))
    delta_output.write(rows(spark, 0), table, made(0))
    delta_output.write(rows(spark, 3), table, made(1))
    assert count(spark, table) == 3


def test_what_is_read_back_is_what_kafka_would_hold(spark: SparkSession, table: str) -> None:
    delta_output.write(rows(spark, 2), table, made(3))
    topic = delta_output.as_topic(spark, table, "out", "id")
    assert (topic.earliest, topic.latest) == ({0: 0}, {0: 4})
    found = delta_output.read(spark, table, 3, 4, parsing.declared(SCHEMA)).orderBy("value").collect()
    assert [bytes(row["value"]).decode() for row in found] == [
        f'{{"page":"page-{n}","at":"1970-01-01T01:00:00.00{n}+01:00"}}' for n in range(2)
    ]
    assert [(row["partition"], row["offset"], bytes(row["key"])) for row in found] == [(0, 3, b"k")] * 2
    assert [[(h["key"], bytes(h["value"]).decode()) for h in row["headers"]] for row in found] == [
        [("rewind-job", "out-g1"), ("rewind-source", f"T:0:{n}")] for n in range(2)
    ]
    assert delta_output.read(spark, table, 0, 3, parsing.declared(SCHEMA)).count() == 0


def test_a_chunk_is_encoded_once_for_both_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, job = fakes.installation(tmp_path / "home"), fakes.generation()
    for name, create in ((job.output_topic, delta_output.create), (job.dead_letter_topic, delta_output.create_dead)):
        path = str(tables.path(settings, name))
        columns = (SCHEMA,) if create is delta_output.create else ()
        tables.mark(settings, name, create(spark, path, *columns))
    seen = []
    write_dead = delta_output.write_dead

    def watched(rows: DataFrame, path: str, made: Write) -> None:
        seen.append("InMemoryTableScan" in rows._jdf.queryExecution().executedPlan().toString())
        write_dead(rows, path, made)

    monkeypatch.setattr(delta_output, "write_dead", watched)
    encoded = rows(spark, 3).withColumn("topic", F.lit(job.output_topic))
    sinks.DeltaSink(settings, job).write(encoded, made(0, f"{job.job_id}-stream-q1"))
    assert seen == [True]
    assert not encoded.is_cached
    assert count(spark, str(tables.path(settings, job.output_topic))) == 3


def test_dead_letters_keep_their_bytes(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "dead")
    delta_output.create_dead(spark, path)
    delta_output.write_dead(rows(spark, 1).withColumn("value", F.lit(b"\xff")), path, made(0))
    (row,) = delta_output.read(spark, path, 0, 1, None).collect()
    assert (bytes(row["key"]), bytes(row["value"])) == (b"k", b"\xff")
