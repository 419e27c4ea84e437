"""Drawn histories merged into a shared output, a table or a topic, each merge held against the oracle."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import shared_table
from rewind.adapters.shared_table import SharedTable
from rewind.adapters.shared_topic import SharedTopic
from rewind.core import coordinates
from rewind.registry.publications import Counts
from rewind.runtime.kafka.broker import Broker
from rewind.transforms.records import merging
from rewind.transforms.values import parsing
from tests.scenarios import histories
from tests.scenarios.histories import Write
from tests.support import fakes
from tests.support.workshop import Workshop

SCHEMA = "k STRING, said STRING, at TIMESTAMP"
HEADERS = "array<struct<key:string,value:binary>>"
Steps = list[list[Write]]


def new_table(spark: SparkSession, path: str) -> SharedTable:
    """Make a shared table; made again it is the same."""
    assert shared_table.create(spark, path, SCHEMA) == shared_table.create(spark, path, SCHEMA)
    return SharedTable(spark, path, parsing.declared(SCHEMA))


def rows_of_table(spark: SparkSession, writes: list[Write], origin: str = "T:0:0-0") -> DataFrame:
    """Return writes as versioned rows of a table."""
    fields = F.struct("k", "said", F.timestamp_millis(F.lit(0)).alias("at"))
    return _versioned(spark, writes, F.when(F.col("said").isNotNull(), fields), origin)


def rows_of_topic(spark: SparkSession, writes: list[Write]) -> DataFrame:
    """Return writes as versioned rows of a topic."""
    return _versioned(spark, writes, F.col("said").cast("binary"), f"{fakes.TOPIC_ID}:0:5-5")


def _versioned(spark: SparkSession, writes: list[Write], content: Column, origin: str) -> DataFrame:
    given = [(w.key, w.version, w.value) for w in writes]
    frame = spark.createDataFrame(given, "k string, version string, said string").repartition(2)
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
        content.alias("content"),
        F.array(*headers).cast(HEADERS).alias("headers"),
    )


def held_by_table(table: SharedTable) -> dict[str, Write]:
    """Return what a table holds; a key with two rows would be an error."""
    found = table.held().select(F.col("key").cast("string").alias("k"), "version", "content.said", "headers").collect()
    assert len({row["k"] for row in found}) == len(found)
    headers = {row["k"]: {h["key"]: bytes(h["value"]).decode() for h in row["headers"]} for row in found}
    assert all(headers[row["k"]][coordinates.VERSION] == row["version"] for row in found)
    return {row["k"]: Write(row["k"], row["version"], row["said"]) for row in found}


def held_by_topic(shop: Workshop, name: str) -> dict[str, Write]:
    """Return the last record of every key of a topic."""
    last: dict[str, Write] = {}
    for record in shop.read(name):
        key, value = (None if text is None else text.decode() for text in (record.key, record.value))
        assert key is not None
        last[key] = Write(key, record.headers[coordinates.VERSION], value)
    return last


def merged_into_table(spark: SparkSession, table: SharedTable, steps: Steps) -> Counts:
    """Merge steps into a table, hold each count and the table in the end against the oracle, and return the sums."""
    oracle, sums = histories.Newest(), Counts()
    for step in steps:
        counts = table.merge(merging.newest(rows_of_table(spark, step)), None)
        assert counts == oracle.merge(step)
        sums = histories.added(sums, counts)
    assert held_by_table(table) == oracle.held
    return sums


def merged_into_topic(spark: SparkSession, shop: Workshop, steps: Steps) -> Counts:
    """Merge steps into a new topic, `<pipeline>-shared`, in the same way."""
    name = f"{shop.pipeline}-shared"
    source = Broker(shop.settings).topic(shop.topic)
    assert source is not None
    Broker(shop.settings).create_topic(name, source, 3, cleanup="compact")
    topic, oracle, sums = SharedTopic(spark, shop.settings, name), histories.Newest(), Counts()
    for step in steps:
        counts = topic.merge(merging.newest(rows_of_topic(spark, step)), None)
        assert counts == oracle.merge(step)
        sums = histories.added(sums, counts)
    assert held_by_topic(shop, name) == oracle.held
    return sums
