"""The Delta mirror of a topic: append, read by offsets, compact, vacuum.

Partitioned by ingest date; partition, offset and timestamp come first and alone have statistics, so that a
range of offsets opens only the files that hold it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from urllib.parse import unquote

from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from rewind.adapters import files
from rewind.core import names
from rewind.core.errors import IntegrityError
from rewind.core.offsets import OffsetRange, Ranges, Vector
from rewind.core.periods import Parts, Period
from rewind.core.settings import Settings

_HEADER = StructType().add("key", StringType()).add("value", BinaryType())
SCHEMA = (
    StructType()
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestamp_type", IntegerType())
    .add("topic_id", StringType())
    .add("topic", StringType())
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("headers", ArrayType(_HEADER))
    .add("ingest_date", DateType())
)
"""Columns of a mirror."""
SHOWN = 20
"""Undeclared fields that are told."""
LISTING_TASKS = 4
"""Tasks a core that VACUUM lists folders in."""
PROPERTIES = {
    "delta.dataSkippingNumIndexedCols": "3",
    "delta.logRetentionDuration": "interval 365 days",
}


def folder(settings: Settings, topic: str) -> Path:
    """Return the folder of a topic's mirror."""
    return names.inside(settings.mirrors, topic, "source.topic")


def table_path(settings: Settings, topic: str) -> str:
    """Return the path of a mirror's Delta table."""
    return str(names.inside(folder(settings, topic), "table", "source.topic"))


def checkpoint_path(settings: Settings, topic: str, topic_id: str) -> str:
    """Return the checkpoint of a mirror's query: a recreated topic gets another, for its offsets are others."""
    return str(names.inside(folder(settings, topic), f"checkpoint-{topic_id}", "source.topic"))


def create(spark: SparkSession, path: str) -> None:
    """Create the table of a mirror unless it is there."""
    builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(SCHEMA).partitionedBy("ingest_date")
    for key, value in PROPERTIES.items():
        builder = builder.property(key, value)
    builder.execute()


def append(
    records: DataFrame, path: str, topic_id: str, day: str, *, application: str, batch: int, metadata: str
) -> None:
    """Append records in one commit that lands once, however often the batch is tried.

    Args:
        records: Source records with `timestamp_type`, one Kafka partition a task, hence a file.
        path: Path of the table.
        topic_id: Id of their topic.
        day: Ingest date, `YYYY-MM-DD` in UTC.
        application: Delta's `txnAppId`.
        batch: Delta's `txnVersion`.
        metadata: The commit's user metadata.
    """
    rows = records.withColumn("topic_id", F.lit(topic_id)).withColumn("ingest_date", F.lit(day).cast("date"))
    options = {"txnAppId": application, "txnVersion": str(batch), "userMetadata": metadata}
    rows.select(*SCHEMA.names).write.format("delta").mode("append").options(**options).save(path)


def read(spark: SparkSession, path: str, version: int) -> DataFrame:
    """Return a version of the mirror.

    Raises:
        IntegrityError: The version is no longer readable.
    """
    try:
        return spark.read.format("delta").option("versionAsOf", version).load(path)
    except PySparkException as error:
        raise IntegrityError(f"mirror version {version} is no longer readable: {error}") from error


def in_ranges(ranges: Mapping[int, OffsetRange], topic_id: str) -> Column:
    """Return the condition that selects offsets of a topic: data columns only, so that files are skipped."""
    return at_any({p: [r] for p, r in ranges.items() if len(r)}) & (F.col("topic_id") == topic_id)


def at_any(parts: Mapping[int, Sequence[OffsetRange]]) -> Column:
    """Return whether a record stands in one of several ranges of its partition."""
    inside = [
        (F.col("partition") == p) & (F.col("offset") >= r.start) & (F.col("offset") < r.end)
        for p, ranges in sorted(parts.items())
        for r in ranges
    ]
    return reduce(Column.__or__, inside, F.lit(False))


def of_period(period: Period) -> Column:
    """Return whether a record's Kafka timestamp lies in a period."""
    at = F.col("timestamp")
    since = [] if period.since is None else [at >= F.timestamp_millis(F.lit(period.since))]
    until = [] if period.until is None else [at < F.timestamp_millis(F.lit(period.until))]
    return reduce(Column.__and__, [*since, *until], F.lit(True))


def within(spark: SparkSession, path: str, topic_id: str, parts: Parts, period: Period) -> Ranges:
    """Return per partition the offsets from the first to after the last record of a period, of those at some offsets.

    A partition without one is absent.
    """
    first, last = F.min("offset").alias("first"), F.max("offset").alias("last")
    found = _at(spark, path, topic_id, parts).where(of_period(period)).groupBy("partition").agg(first, last)
    # One row a partition of the topic.
    return {row["partition"]: OffsetRange(row["first"], row["last"] + 1) for row in found.collect()}


def count_outside(spark: SparkSession, path: str, topic_id: str, parts: Parts, period: Period) -> int:
    """Return how many records at some offsets lie outside a period."""
    return _at(spark, path, topic_id, parts).where(~of_period(period)).select("partition", "offset").distinct().count()


def _at(spark: SparkSession, path: str, topic_id: str, parts: Parts) -> DataFrame:
    return spark.read.format("delta").load(path).where(at_any(parts) & (F.col("topic_id") == topic_id))


def first_offsets(
    spark: SparkSession, path: str, topic_id: str, instants: Sequence[datetime], sane: datetime
) -> list[Vector]:
    """Return per instant and partition the first mirrored offset of a record as young; absent when there is none.

    Args:
        spark: The session.
        path: Path of the table.
        topic_id: Id of the topic.
        instants: The instants.
        sane: Records that claim to be of then or later have a wrong clock, and count for nothing: one of them would
            stand for all that come after it.
    """
    rows = spark.read.format("delta").load(path)
    at = F.col("timestamp")
    young = rows.where((at >= F.lit(min(instants))) & (at < F.lit(sane)) & (F.col("topic_id") == topic_id))
    first = [
        F.min(F.when(at >= F.lit(instant), F.col("offset"))).alias(str(number))
        for number, instant in enumerate(instants)
    ]
    # One row a partition of the topic.
    found = young.groupBy("partition").agg(*first).collect()
    return [
        {row["partition"]: row[str(number)] for row in found if row[str(number)] is not None}
        for number in range(len(instants))
    ]


def undeclared(
    spark: SparkSession, path: str, version: int, ranges: Ranges, *, topic_id: str, declared: StructType
) -> list[str]:
    """Return fields that the JSON objects at some offsets hold and a schema does not declare, in order; some of many.

    Args:
        spark: The session.
        path: Path of the table.
        version: Its version.
        ranges: Offsets to look at: few, for their records are read.
        topic_id: Id of their topic.
        declared: The schema.
    """
    text = F.col("value").cast("string")
    # What is no text or no object has no fields: both give null, and no row.
    names = F.explode(F.json_object_keys(F.when(F.is_valid_utf8(text), text))).alias("name")
    found = read(spark, path, version).where(in_ranges(ranges, topic_id)).select(names).distinct()
    unknown = found.where(~F.col("name").isin(*declared.names)).orderBy("name").limit(SHOWN)
    return [row["name"] for row in unknown.collect()]


def check_readable(spark: SparkSession, path: str, version: int) -> None:
    """Check that all files of a version are still there, before anything depends on them.

    Delta's log tells versions for longer than a VACUUM leaves their files: without this a backfill would end at the
    first file that is gone, half done.

    Raises:
        IntegrityError: The version is no longer readable.
    """
    needed: dict[str, set[str]] = {}
    for uri in read(spark, path, version).inputFiles():
        place, _, name = unquote(uri).rpartition("/")
        needed.setdefault(place, set()).add(name)
    gone = [name for place, wanted in needed.items() for name in wanted - set(files.names(spark, place))]
    if gone:
        count = sum(map(len, needed.values()))
        cure = "A VACUUM took them: abort, and plan again"
        raise IntegrityError(
            f"mirror version {version} is no longer readable: {len(gone)} of its {count} files are gone. {cure}"
        )


def compact(spark: SparkSession, path: str, day: str, file_records: int) -> None:
    """Rewrite a closed ingest day into few files, one Kafka partition each, in the order of its offsets.

    The commit changes no data. A plain OPTIMIZE would mix partitions and lose the pruning by offset.

    Args:
        spark: The session.
        path: Path of the table.
        day: The ingest date.
        file_records: Most records in one file.
    """
    rows = spark.read.format("delta").load(path).where(F.col("ingest_date") == F.lit(day).cast("date"))
    counts = rows.groupBy("topic_id", "partition").count().collect()
    parts = [
        rows.where((F.col("topic_id") == row["topic_id"]) & (F.col("partition") == row["partition"]))
        .repartitionByRange(-(-row["count"] // file_records), "offset")
        .sortWithinPartitions("offset")
        for row in counts
    ]
    if not parts:
        return
    whole = reduce(DataFrame.unionByName, parts)
    options = {"dataChange": "false", "replaceWhere": f"ingest_date = '{day}'"}
    whole.write.format("delta").mode("overwrite").options(**options).save(path)


def fragmented_days(spark: SparkSession, path: str, before: str, most_files: int) -> list[str]:
    """Return the ingest days before a day that have more than `most_files` files."""
    files = DeltaTable.forPath(spark, path).detail().select("numFiles").first()
    if files is None or files["numFiles"] <= most_files:
        return []
    rows = spark.read.format("delta").load(path).where(F.col("ingest_date") < F.lit(before).cast("date"))
    by_day = rows.select("ingest_date", F.input_file_name().alias("file")).groupBy("ingest_date")
    many = by_day.agg(F.count_distinct("file").alias("files")).where(F.col("files") > most_files)
    return sorted(str(row["ingest_date"]) for row in many.collect())


def vacuum(spark: SparkSession, path: str, retain_hours: float) -> None:
    """Delete files that no version younger than `retain_hours` needs."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # VACUUM takes as many tasks as this allows, 10,000 unless told otherwise, however few folders there are.
    tasks = spark.sparkContext.defaultParallelism * LISTING_TASKS
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", str(tasks))
    DeltaTable.forPath(spark, path).vacuum(retain_hours)
