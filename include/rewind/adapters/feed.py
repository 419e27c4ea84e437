"""The feed of a stateful generation: its history as a Delta table of its own, one commit and one file a chunk.

A stream of Delta reads commits in their order, but merges small ones and splits large ones. With one file a commit and
one file a micro-batch, a batch is a chunk. Version 0 makes the table, so chunk `n` is version `n + 1`. The generation
owns the table: nothing compacts it, deletes from it or vacuums it. What is read of it may be let go of, as files.
"""

from __future__ import annotations

import json
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from rewind.adapters import delta_log
from rewind.adapters import mirror as table
from rewind.adapters.checkpoint import FEED
from rewind.core.errors import IntegrityError
from rewind.core.offsets import Ranges
from rewind.core.planning.chunks import Arrivals

COLUMNS = ("partition", "offset", "timestamp", "timestamp_type", "topic", "key", "value", "headers")
"""Columns of a feed: those of a source record."""

SPANS = 10_000
"""Spans of time that a wave is divided into to find when what arrived: with a row a partition for each."""


def create(spark: SparkSession, path: str) -> None:
    """Create the table of a feed unless it is there."""
    fields = [table.SCHEMA[name] for name in COLUMNS]
    builder = DeltaTable.createIfNotExists(spark).location(path)
    for field in fields:
        builder = builder.addColumn(field.name, field.dataType)
    for key, value in table.PROPERTIES.items():
        builder = builder.property(key, value)
    builder.execute()


def append(rows: DataFrame, path: str, owner: str, chunk: int) -> None:
    """Append a chunk's records in one commit of one file; tried again after a crash it lands once.

    Raises:
        IntegrityError: The commit holds something else, or more files than one.
    """
    spark = rows.sparkSession
    if not _landed(spark, path, owner, chunk):
        options = {"txnAppId": f"{owner}-feed", "txnVersion": str(chunk)}
        rows.select(*COLUMNS).coalesce(1).write.format("delta").mode("append").options(**options).save(path)
    if not _landed(spark, path, owner, chunk):
        raise IntegrityError(f"feed {path}: chunk {chunk} did not land")


def records(spark: SparkSession, path: str, chunk: int) -> DataFrame:
    """Return the records of a chunk, by its number in the feed.

    Its one file is read as such: of chunks before it the log alone may be left.
    """
    (file,) = delta_log.entry(spark, path, chunk + 1).files
    return spark.read.schema(StructType([table.SCHEMA[name] for name in COLUMNS])).parquet(f"{path}/{file}")


def let_go(path: Path) -> None:
    """Delete the records of a feed, all of which are read; what its log tells of them stays."""
    for file in path.glob("*.parquet"):
        file.unlink()


def stream(spark: SparkSession) -> DataStreamReader:
    """Return the streaming reader of a feed: a micro-batch reads a file, hence a chunk."""
    options = {"startingVersion": "1", "maxFilesPerTrigger": "1"}
    return spark.readStream.name(FEED).format("delta").options(**options)


def chunks(spark: SparkSession, path: str) -> int:
    """Return how many chunks a feed holds; 0 when there is none."""
    return max(delta_log.versions(spark, path, 0), default=0)


def consumed(end: str) -> int:
    """Return how many chunks a batch has read up to its end, by the offset log's text of its Delta source.

    Raises:
        IntegrityError: The batch ends within a chunk.
    """
    body = json.loads(end)
    if body["index"] != -1:
        raise IntegrityError(f"feed: a batch ends within a chunk: {end}")
    return int(body["reservoirVersion"]) - 1


def arrivals(spark: SparkSession, path: str, version: int, ranges: Ranges, topic_id: str) -> list[Arrivals]:
    """Return when the records of some offsets of a mirror arrived, by their Kafka timestamps.

    Three columns are read, and no more than `SPANS` rows a partition come back, however long the history.
    """
    rows = table.read(spark, path, version).where(table.in_ranges(ranges, topic_id))
    times = rows.select("partition", "offset", F.unix_millis("timestamp").alias("at"))
    bounds = times.agg(F.min("at").alias("first"), F.max("at").alias("last")).first()
    if bounds is None or bounds["first"] is None:
        return []
    width = (bounds["last"] - bounds["first"]) // SPANS + 1
    span = ((F.col("at") - bounds["first"]) / width).cast("long").alias("span")
    firsts = times.groupBy(span, "partition").agg(F.min("offset").alias("first")).collect()
    return [Arrivals(row["span"], row["partition"], row["first"]) for row in firsts]


def _landed(spark: SparkSession, path: str, owner: str, chunk: int) -> bool:
    try:
        made = delta_log.entry(spark, path, chunk + 1)
    except FileNotFoundError:
        return False
    if made.transaction != (f"{owner}-feed", chunk) or len(made.files) != 1:
        raise IntegrityError(f"feed {path}: version {chunk + 1} is not chunk {chunk} in one file: {made}")
    return True
