"""A shared table holds of every key the newest version that ever came, whatever came again or late."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import shared_table
from rewind.adapters.shared_table import SharedTable
from rewind.control.publications import Counts
from rewind.core import coordinates
from rewind.transforms import merging, parsing
from rewind.transforms.merging import Begin
from tests.scenarios import histories
from tests.scenarios.histories import Write

SCHEMA = "k STRING, said STRING, at TIMESTAMP"
HEADERS = "array<struct<key:string,value:binary>>"


def rows(spark: SparkSession, writes: list[Write], origin: str = "T:0:0-0") -> DataFrame:
    """Return writes as versioned rows of a table."""
    given = [(w.key, w.version, w.value) for w in writes]
    frame = spark.createDataFrame(given, "k string, version string, said string").repartition(2)
    fields = F.struct("k", "said", F.timestamp_millis(F.lit(0)).alias("at"))
    pairs = {
        coordinates.JOB: F.lit("out-g1"),
        coordinates.TOKEN: F.lit("1"),
        coordinates.VERSION: F.col("version"),
        coordinates.SPAN: F.lit(origin),
    }
    headers = [F.struct(F.lit(k).alias("key"), v.cast("binary").alias("value")) for k, v in pairs.items()]
    return frame.select(
        F.col("k").cast("binary").alias("key"),
        "version",
        F.when(F.col("said").isNotNull(), fields).alias("content"),
        F.array(*headers).cast(HEADERS).alias("headers"),
    )


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> SharedTable:
    path = str(tmp_path / "out-shared")
    assert shared_table.create(spark, path, SCHEMA) == shared_table.create(spark, path, SCHEMA)
    return SharedTable(spark, path, parsing.declared(SCHEMA))


def held(table: SharedTable) -> dict[str, Write]:
    """Return what a table holds; a key with two rows would be an error."""
    found = table.held().select(F.col("key").cast("string").alias("k"), "version", "content.said", "headers").collect()
    assert len({row["k"] for row in found}) == len(found)
    told = {row["k"]: {h["key"]: bytes(h["value"]).decode() for h in row["headers"]} for row in found}
    assert all(told[row["k"]][coordinates.VERSION] == row["version"] for row in found)
    return {row["k"]: Write(row["k"], row["version"], row["said"]) for row in found}


def merge_all(spark: SparkSession, table: SharedTable, steps: list[list[Write]]) -> Counts:
    """Merge steps, hold each count and the table in the end against the oracle, and return the sums."""
    oracle, sums = histories.Newest(), Counts()
    for step in steps:
        counts = table.merge(merging.newest(rows(spark, step)), None)
        assert counts == oracle.merge(step)
        sums = histories.added(sums, counts)
    assert held(table) == oracle.held
    return sums


def test_drawn_histories_equal_the_newest_version(spark: SparkSession, table: SharedTable) -> None:
    sums = merge_all(spark, table, histories.drawn(seed=11, count=50, steps=4))
    assert min(sums.written, sums.repeated, sums.stale) > 0


def test_a_merge_of_nothing_is_no_commit(spark: SparkSession, table: SharedTable) -> None:
    assert table.merge(rows(spark, []), None) == Counts()
    assert held(table) == {}


def test_at_a_new_epoch_versions_begin_with_it(spark: SparkSession) -> None:
    staged = [Write("a", coordinates.version(1, 7), "1"), Write("b", coordinates.version(1, 41, repair=3), None)]
    found = merging.restamped(rows(spark, staged), 3).orderBy("key").collect()
    wanted = [coordinates.version(3, 7), coordinates.version(3, 41, repair=3)]
    assert [row["version"] for row in found] == wanted
    told = [{h["key"]: bytes(h["value"]).decode() for h in row["headers"]} for row in found]
    assert [headers[coordinates.VERSION] for headers in told] == wanted
    assert [headers[coordinates.JOB] for headers in told] == ["out-g1", "out-g1"]
    assert [row["content"] is None for row in found] == [False, True]


# --- keys that the job which became live does not have


def gone(held: DataFrame, begin: Begin, keys: list[str], starts: int = 0) -> set[str]:
    mine = held.sparkSession.createDataFrame([(key.encode(),) for key in keys], "key binary")
    made = merging.tombstones(held, mine, begin, F.lit(starts), coordinates.version(2, 5)).collect()
    assert all(row["content"] is None and row["version"] == coordinates.version(2, 5) for row in made)
    return {bytes(row["key"]).decode() for row in made}


def test_a_key_is_kept_when_all_its_records_lie_before_the_start(spark: SparkSession) -> None:
    origins = {
        "before": "T:0:3-9,1:4-9",
        "reaches in": "T:0:3-10,1:4-9",
        "reaches far in": "T:0:3-9,1:4-30",
        "an added partition": "T:2:0-0",
        "one record before": "T:0:9",
        "one record": "T:1:10",
        "another topic": "other:0:99-99",
    }
    one = [rows(spark, [Write(key, coordinates.version(1, 1), "1")], origin) for key, origin in origins.items()]
    held = functools.reduce(DataFrame.unionByName, one)
    assert gone(held, Begin("T", {0: 10, 1: 10}, None), []) == {
        *("reaches in", "reaches far in"),
        *("an added partition", "one record"),
    }


def test_what_the_job_has_or_does_not_publish_or_is_gone_already_gets_no_tombstone(spark: SparkSession) -> None:
    values = {"had": "1", "gone": None, "not": "1"}
    held = rows(spark, [Write(key, coordinates.version(1, 1), value) for key, value in values.items()])
    assert gone(held, Begin("T", {0: 0}, None), ["had"]) == {"not"}
    assert gone(held, Begin("T", {0: 0}, 60_000), ["had"], starts=59_999) == set()
    assert gone(held, Begin("T", {0: 0}, 60_000), ["had"], starts=60_000) == {"not"}
    # An attempt that died had made some: they are made again, and counted.
    again = rows(spark, [Write("not", coordinates.version(2, 4), None)])
    assert gone(again, Begin("T", {0: 0}, None), ["had"]) == {"not"}
