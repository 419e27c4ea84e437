"""Output tables in Delta: typed columns, with what Kafka would hold as key and headers, written exactly once.

A write carries `txnAppId` and `txnVersion`, by which Delta leaves out what landed before. The ids must grow: one id for
two phases, or a fresh checkpoint under an old id, would leave rows out without a word
(https://docs.delta.io/delta-streaming, idempotent writes). So the id names job and phase, and what did not land is an
error unless the table holds the same write already.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rewind.adapters import delta_log
from rewind.core import coordinates
from rewind.core.errors import IntegrityError
from rewind.core.model import Topic
from rewind.core.offsets import Ranges
from rewind.transforms.values import json_text
from rewind.transforms.values.quoting import structure

KEY, HEADERS, ORDINAL, TOMBSTONE, VALUE = "_key", "_headers", "_ordinal", "_tombstone", "_value"
"""Columns beside the typed ones: the output key; the headers of the contract, as a map from name to text; the number of
the write, which grows; whether the row deletes its key; and, in dead letters, the record's bytes."""

STREAM_ORDINAL = 1 << 40
"""First number of a stream's writes: those of a backfill are its chunks and lie below."""

_ROW = f"{KEY} BINARY, {HEADERS} MAP<STRING, STRING>, {ORDINAL} BIGINT"


@dataclass(frozen=True)
class Write:
    """One write of a job to its tables.

    Attributes:
        application: Delta's `txnAppId`: job and phase.
        number: Delta's `txnVersion`: chunk or micro-batch, in order.
        ordinal: The number of the write among all of the job's.
        ranges: Source offsets that it covers.
    """

    application: str
    number: int
    ordinal: int
    ranges: Ranges


def create(spark: SparkSession, path: str, output_schema: str) -> str:
    """Create the table of results unless it is there, and return its id."""
    return created(spark, path, f"{output_schema}, {TOMBSTONE} BOOLEAN, {_ROW}")


def create_dead(spark: SparkSession, path: str) -> str:
    """Create the table of dead letters unless it is there, and return its id."""
    return created(spark, path, f"{VALUE} BINARY, {_ROW}")


def write(rows: DataFrame, path: str, made: Write) -> None:
    """Append the results among encoded rows, in one commit that lands once.

    Args:
        rows: Rows with `fields` and `encoding.SINK_COLUMNS` of the table alone.
        path: Path of the table.
        made: What is written.

    Raises:
        IntegrityError: Nothing landed, and the table does not hold the same write from before.
    """
    kept = rows.select("fields.*", F.col("value").isNull().alias(TOMBSTONE), *_beside(made))
    _append(kept, path, made)


def write_dead(rows: DataFrame, path: str, made: Write) -> None:
    """Append the dead letters among encoded rows, as `write` does."""
    _append(rows.select(F.col("value").alias(VALUE), *_beside(made)), path, made)


def copy(spark: SparkSession, source: str, target: str, made: Write) -> int:
    """Append all rows of a table to another of the same columns, in one commit that lands once; return how many.

    Raises:
        IntegrityError: As `write`.
    """
    rows = spark.read.format("delta").load(source)
    _append(rows.withColumn(ORDINAL, F.lit(made.ordinal).cast("long")), target, made)
    return rows.count()


def carry(spark: SparkSession, source: str, target: str, start: int, application: str) -> None:
    """Append the rows of a table from a write on to an empty one of the same columns, with the numbers they have."""
    rows = spark.read.format("delta").load(source).where(F.col(ORDINAL) >= start)
    _append(rows, target, Write(application, 0, start, {}))


def as_topic(spark: SparkSession, path: str, name: str, table_id: str) -> Topic:
    """Return a table as a topic of one partition, whose offsets are the numbers of its writes."""
    newest = spark.read.format("delta").load(path).agg(F.max(ORDINAL).alias("newest")).first()
    end = 0 if newest is None or newest["newest"] is None else int(newest["newest"]) + 1
    return Topic(name, table_id, {0: 0}, {0: end})


def read(spark: SparkSession, path: str, start: int, end: int, schema: StructType | None) -> DataFrame:
    """Return the rows of some writes as the Kafka source would give them.

    Args:
        spark: The session; times are written in its zone.
        path: Path of the table.
        start: First number.
        end: Number after the last one.
        schema: Typed columns of results; None for dead letters.

    Returns:
        `key`, `value`, `headers`, `partition` (0) and `offset` (the number of the write).
    """
    rows = spark.read.format("delta").load(path).where((F.col(ORDINAL) >= start) & (F.col(ORDINAL) < end))
    if schema is None:
        value = F.col(VALUE)
    else:
        text = json_text.of_columns(schema, exact=True).cast("binary")
        value = F.when(~F.col(TOMBSTONE), text)
    return rows.select(
        F.col(KEY).alias("key"),
        value.alias("value"),
        header_pairs().alias("headers"),
        F.lit(0).alias("partition"),
        F.col(ORDINAL).alias("offset"),
    )


def read_versioned(spark: SparkSession, path: str, start: int, end: int, schema: StructType) -> DataFrame:
    """Return the results of some writes as versioned rows (`transforms.records.merging`), with their typed columns."""
    rows = spark.read.format("delta").load(path).where((F.col(ORDINAL) >= start) & (F.col(ORDINAL) < end))
    return rows.select(
        F.col(KEY).alias("key"),
        F.col(HEADERS)[coordinates.VERSION].alias("version"),
        F.when(~F.col(TOMBSTONE), structure(schema.names)).alias("content"),
        header_pairs().alias("headers"),
    )


def header_pairs() -> Column:
    """Return the headers of a row of a table as Kafka has them."""
    return F.transform(
        F.map_entries(HEADERS), lambda e: F.struct(e["key"].alias("key"), e["value"].cast("binary").alias("value"))
    )


def header_map() -> Column:
    """Return the column `headers` of encoded rows as a table has it."""
    return F.map_from_entries(F.transform("headers", lambda h: F.struct(h["key"], h["value"].cast("string"))))


def created(spark: SparkSession, path: str, ddl: str) -> str:
    """Create a table of some columns unless it is there, and return its id."""
    builder = DeltaTable.createIfNotExists(spark).location(path)
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    builder.addColumns(schema).execute()
    found = DeltaTable.forPath(spark, path).detail().select("id").first()
    assert found is not None
    return str(found["id"])


def _beside(made: Write) -> list[Column]:
    return [
        F.col("key").alias(KEY),
        header_map().alias(HEADERS),
        F.lit(made.ordinal).cast("long").alias(ORDINAL),
    ]


def _append(rows: DataFrame, path: str, made: Write) -> None:
    spark = rows.sparkSession
    before = delta_log.newest(spark, path)
    metadata = json.dumps({"ranges": {str(p): [r.start, r.end] for p, r in sorted(made.ranges.items())}})
    options = {"txnAppId": made.application, "txnVersion": str(made.number), "userMetadata": metadata}
    rows.write.format("delta").mode("append").options(**options).save(path)
    pair = (made.application, made.number)
    landed = any(delta_log.entry(spark, path, v).transaction == pair for v in delta_log.versions(spark, path, before))
    if not landed and not _held(spark, path, pair, metadata):
        raise IntegrityError(
            f"{path}: write {made.number} of {made.application} did not land: the table holds a later one of that id, "
            "or one with other offsets. Was its checkpoint recreated?"
        )


def _held(spark: SparkSession, path: str, pair: tuple[str, int], metadata: str) -> bool:
    """Return whether the table holds a write already, with the same offsets; newest commits first."""
    for version in reversed(delta_log.versions(spark, path, -1)):
        entry = delta_log.entry(spark, path, version)
        if entry.transaction == pair:
            return entry.metadata == metadata
        if entry.transaction is not None and entry.transaction[0] == pair[0] and entry.transaction[1] < pair[1]:
            return False
    return False
