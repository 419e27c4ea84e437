"""Output rows as they are compared: one a source coordinate, repeats counted."""

from __future__ import annotations

from typing import Any

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
    # Projections of their own: the text of a header is found once a row, however often it is read below.
    texts = kafka.select(
        "key",
        "value",
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
        header(coordinates.SOURCE, 2).alias("source"),
        header(coordinates.REPAIR, 3).alias("repair"),
        header(coordinates.REASON, 3, 4).alias("reason"),
    )
    placed = texts.where(F.col("source").startswith(f"{topic_id}:")).withColumn("parts", F.split("source", ":"))
    return placed.select(
        F.col("parts")[1].cast("int").alias("p"),
        F.col("parts")[2].cast("long").alias("o"),
        F.coalesce(F.get("parts", F.lit(3)).cast("int"), F.lit(0)).alias("n"),
        F.coalesce(F.col("repair").cast("int"), F.lit(0)).alias("repair"),
        F.lit(kind).alias("kind"),
        "key",
        "value",
        "reason",
        "out_partition",
        "out_offset",
    )


def fingerprints(rows: DataFrame) -> DataFrame:
    """Return one narrow row a coordinate, by which most rows of two outputs are told equal without their content.

    One shuffle serves the grouping by repair, the choice of the highest repair, and a join by coordinate.

    Returns:
        `COORDINATE`; `hash` of the content that counts; `dead`; `copies` of the highest repair; `varied`, whether
        those copies differ; and of all rows, whatever their repair: `first`, the lowest offset at which one stands in
        the output, `place` and `last_place`, the lowest and the highest place (`place`).
    """
    dead = F.col("kind") == DEAD
    where = place(F.col("out_partition"), dead.cast("int")).alias("place")
    hashed = rows.select(*COORDINATE, "repair", "out_offset", where, _hash().alias("hash"), dead.alias("dead"))
    placed = hashed.repartition(*(F.col(name) for name in COORDINATE))
    by_repair = placed.groupBy(*COORDINATE, "repair").agg(
        F.count(F.lit(1)).alias("copies"),
        F.max_by("hash", "out_offset").alias("hash"),
        F.max_by("dead", "out_offset").alias("dead"),
        (F.max("hash") != F.min("hash")).alias("varied"),
        F.min("out_offset").alias("first"),
        F.min("place").alias("place"),
        F.max("place").alias("last_place"),
    )
    names = ("hash", "dead", "copies", "varied")
    return by_repair.groupBy(*COORDINATE).agg(
        *(F.max_by(name, "repair").alias(name) for name in names),
        F.min("first").alias("first"),
        F.min("place").alias("place"),
        F.max("last_place").alias("last_place"),
    )


def _hash() -> Column:
    """Return the hash of a row's content: each part beside whether it is null, which a hash passes over."""
    return F.xxhash64(*(part for name in CONTENT for part in (F.col(name).isNull(), F.col(name))))


def place(partition: Any, dead: Any) -> Any:
    """Return one number for a partition of the output topic (`dead` 0) or of the dead-letter topic (`dead` 1)."""
    return partition * 2 + dead


def deduplicated(rows: DataFrame) -> DataFrame:
    """Return one row a coordinate, as a reader of the headers contract sees it: the highest repair counts.

    Returns:
        `COORDINATE` and `CONTENT`.
    """
    newest = F.max_by(F.struct(*CONTENT), F.struct("repair", "out_offset")).alias("newest")
    return rows.groupBy(*COORDINATE).agg(newest).select(*COORDINATE, "newest.*")


def first_whole(rows: DataFrame) -> DataFrame:
    """Return per source partition `p` the offset `first` from which the output still holds every record.

    Retention cuts each output partition at its own place; what the latest of them begins with is whole in all.
    """
    begins = rows.groupBy("p", "out_partition").agg(F.min("o").alias("begin"))
    return begins.groupBy("p").agg(F.max("begin").alias("first"))


def header(name: str, *usual: int) -> Column:
    """Return the text of a header: looked for where our jobs put it, and only then among all.

    The search by a lambda is interpreted for each row and would cost more than all else that a comparison does.
    """
    places = [F.get("headers", F.lit(index)) for index in usual]
    searched = F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]
    found = F.when(F.coalesce(F.size("headers"), F.lit(0)) <= usual[0], F.lit(None).cast("binary"))
    for place in places:
        found = found.when(place["key"] == name, place["value"])
    return found.otherwise(searched).cast("string")
