"""Output rows as they are compared: one a source coordinate, repeats counted."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rewind.core import coordinates

ROW, DEAD = "row", "dead"
COORDINATE = ("p", "o", "n")
CONTENT = ("kind", "key", "value", "reason")


def located(kafka: DataFrame, kind: str, topic_id: str) -> DataFrame:
    """Return the rows of an output topic that were made from one source topic, with their coordinates.

    Args:
        kafka: Rows of the Kafka source, with headers.
        kind: `ROW` for an output topic, `DEAD` for a dead-letter topic.
        topic_id: Id of the source topic; rows of a recreated one are left out.

    Returns:
        `p` int, `o` long, `n` int: source partition, offset and row; `repair` int; `CONTENT`; `out_partition`
        and `out_offset`: where the row stands in its topic.
    """
    parts = F.split(_header(coordinates.SOURCE), ":")
    repair = F.coalesce(_header(coordinates.REPAIR).cast("int"), F.lit(0))
    return kafka.where(parts[0] == topic_id).select(
        parts[1].cast("int").alias("p"),
        parts[2].cast("long").alias("o"),
        F.coalesce(F.get(parts, F.lit(3)).cast("int"), F.lit(0)).alias("n"),
        repair.alias("repair"),
        F.lit(kind).alias("kind"),
        "key",
        "value",
        _header(coordinates.REASON).alias("reason"),
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
    )


def deduplicated(rows: DataFrame) -> DataFrame:
    """Return one row a coordinate, as a reader of the headers contract sees it: the highest repair counts.

    Returns:
        `COORDINATE`, `CONTENT`, `copies` (rows of that repair with this coordinate) and `varied` (whether
        those copies differ in content).
    """
    content = F.struct(*CONTENT)
    hashed = F.xxhash64(*CONTENT)
    newest = F.max_by(F.struct("repair", content.alias("content")), F.struct("repair", "out_offset")).alias("newest")
    # Of the copies with the highest repair, the largest and the smallest hash: they differ when the copies do.
    largest = F.max(F.struct("repair", hashed.alias("hash"))).alias("largest")
    smallest = F.max(F.struct("repair", F.bitwise_not(hashed).alias("hash"))).alias("smallest")
    by_repair = F.count(F.lit(1)).alias("copies")
    grouped = rows.groupBy(*COORDINATE).agg(newest, largest, smallest, by_repair)
    return grouped.select(
        *COORDINATE,
        "newest.content.*",
        "copies",
        (F.col("largest.hash") != F.bitwise_not(F.col("smallest.hash"))).alias("varied"),
    )


def first_whole(rows: DataFrame) -> DataFrame:
    """Return per source partition `p` the offset `first` from which the output still holds every record.

    Retention cuts each output partition at its own place; what the latest of them begins with is whole in all.
    """
    begins = rows.groupBy("p", "out_partition").agg(F.min("o").alias("begin"))
    return begins.groupBy("p").agg(F.max("begin").alias("first"))


def _header(name: str) -> Column:
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.get(found, F.lit(0))["value"].cast("string")
