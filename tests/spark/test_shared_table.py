"""A shared table holds of every key the newest version that ever came, whatever came again or late."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters.shared_table import SharedTable
from rewind.core import coordinates
from rewind.registry.publications import Counts
from rewind.transforms.records import merging
from rewind.transforms.records.merging import Begin
from tests.scenarios import histories
from tests.scenarios.histories import Write
from tests.scenarios.shared_histories import held_by_table, merged_into_table, new_table, rows_of_table

pytestmark = pytest.mark.full


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> SharedTable:
    return new_table(spark, str(tmp_path / "out-shared"))


def test_drawn_histories_equal_the_newest_version(spark: SparkSession, table: SharedTable) -> None:
    sums = merged_into_table(spark, table, histories.drawn(seed=11, count=50, steps=4))
    assert min(sums.written, sums.repeated, sums.stale) > 0


def test_a_merge_of_nothing_is_no_commit(spark: SparkSession, table: SharedTable) -> None:
    assert table.merge(rows_of_table(spark, []), None) == Counts()
    assert held_by_table(table) == {}


def test_at_a_new_epoch_versions_begin_with_it(spark: SparkSession) -> None:
    staged = [Write("a", coordinates.version(1, 7), "1"), Write("b", coordinates.version(1, 41, repair=3), None)]
    found = merging.restamped(rows_of_table(spark, staged), 3).orderBy("key").collect()
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
    version = coordinates.version(1, 1)
    one = [rows_of_table(spark, [Write(key, version, "1")], origin) for key, origin in origins.items()]
    held = functools.reduce(DataFrame.unionByName, one)
    assert gone(held, Begin("T", {0: 10, 1: 10}, None), []) == {
        *("reaches in", "reaches far in"),
        *("an added partition", "one record"),
    }


def test_what_the_job_has_or_does_not_publish_or_is_gone_already_gets_no_tombstone(spark: SparkSession) -> None:
    values = {"had": "1", "gone": None, "not": "1"}
    held = rows_of_table(spark, [Write(key, coordinates.version(1, 1), value) for key, value in values.items()])
    assert gone(held, Begin("T", {0: 0}, None), ["had"]) == {"not"}
    assert gone(held, Begin("T", {0: 0}, 60_000), ["had"], starts=59_999) == set()
    assert gone(held, Begin("T", {0: 0}, 60_000), ["had"], starts=60_000) == {"not"}
    # An attempt that died had made some: they are made again, and counted.
    again = rows_of_table(spark, [Write("not", coordinates.version(2, 4), None)])
    assert gone(again, Begin("T", {0: 0}, None), ["had"]) == {"not"}
