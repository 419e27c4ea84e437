"""Versions of keys on their way into a shared output: the newest wins, and what is gone gets a tombstone.

A *versioned* row has `VERSIONED`: `key`; `version`, as text that grows; `content`, null for a tombstone, else the bytes
of a topic or the typed columns of a table; and `headers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rewind.core import coordinates
from rewind.transforms.records.outputs import header

VERSIONED = ("key", "version", "content", "headers")
WRITTEN, REPEATED, STALE = "written", "repeated", "stale"
"""What becomes of a row, by the version that its key has: none or an older one, the same, a newer one."""


@dataclass(frozen=True)
class Begin:
    """From where on a job has the answers: a key of before is not gone because the job lacks it.

    Attributes:
        topic_id: Id of its source topic; what came of another topic is of before.
        start: First source offset of its history, per partition.
        trusted_from: Results that start before this instant it does not publish, in milliseconds since 1970; None when
            it publishes all.
    """

    topic_id: str
    start: Mapping[int, int]
    trusted_from: int | None


def version() -> Column:
    """Return the version in the headers of a row."""
    return header(coordinates.VERSION, 2)


def restamped(rows: DataFrame, epoch: int) -> DataFrame:
    """Return versioned rows as they are published at an epoch: it takes the place of the one they were written with."""
    new = F.concat(F.lit(coordinates.epoch_text(epoch)), F.substring("version", coordinates.EPOCH_WIDTH + 1, 64))
    return _marked(rows.withColumn("version", new))


def newest(rows: DataFrame) -> DataFrame:
    """Return one versioned row a key: its newest. Rows of one version of a key are the same."""
    kept = F.max_by(F.struct(*VERSIONED), "version").alias("kept")
    return rows.groupBy("key").agg(kept).select(*(f"kept.{name}" for name in VERSIONED))


def with_fate(rows: DataFrame, held: DataFrame) -> DataFrame:
    """Return versioned rows, one a key, with their `fate`.

    Args:
        rows: The rows.
        held: `key` and `version`, one a key: the newest that the shared output has.
    """
    known = held.select("key", F.col("version").alias("held"))
    fate = (
        F.when(F.col("held").isNull() | (F.col("version") > F.col("held")), WRITTEN)
        .when(F.col("version") == F.col("held"), REPEATED)
        .otherwise(STALE)
    )
    return rows.join(known, on="key", how="left").select(*VERSIONED, fate.alias("fate"))


def tombstones(held: DataFrame, keys: DataFrame, begin: Begin, starts: Column, new: str) -> DataFrame:
    """Return a tombstone for each key that a shared output has, and the job that became live does not.

    Keys whose records all lie before that job's start are left alone, and so are results that it does not publish.

    Args:
        held: Versioned rows, one a key: what the shared output has.
        keys: `key` of all results of the job.
        begin: From where on it has the answers.
        starts: First instant of a result of `held`, in milliseconds since 1970.
        new: Version of the tombstones. Those of this epoch are made again: an attempt before this one made them.
    """
    alive = F.col("content").isNotNull() | (F.col("version") >= new[: coordinates.EPOCH_WIDTH])
    whole = F.lit(True) if begin.trusted_from is None else starts.isNull() | (starts >= begin.trusted_from)
    gone = held.join(keys, on="key", how="left_anti").where(alive & whole & ~_before(begin))
    nothing = F.lit(None).cast(held.schema["content"].dataType)
    return _marked(gone.withColumns({"content": nothing, "version": F.lit(new)}))


def _before(begin: Begin) -> Column:
    """Return whether all records of a row lie before a start, or are another topic's."""
    origin = F.coalesce(header(coordinates.SPAN, 3), header(coordinates.SOURCE, 3))
    starts = F.create_map(*(F.lit(value) for pair in sorted(begin.start.items()) for value in pair))
    parts = F.split(F.substring(origin, len(begin.topic_id) + 2, 1 << 30), ",")

    def earlier(part: Column) -> Column:
        place = F.split(part, ":")
        last = F.element_at(F.split(place[1], "-"), -1).cast("long")
        return last < F.coalesce(F.try_element_at(starts, place[0].cast("int")), F.lit(0))

    return F.when(origin.startswith(f"{begin.topic_id}:"), F.forall(parts, earlier)).otherwise(True)


def _marked(rows: DataFrame) -> DataFrame:
    """Return versioned rows whose header says their version."""
    text = F.col("version").cast("binary")
    marked = F.transform(
        "headers",
        lambda h: F.struct(
            h["key"].alias("key"), F.when(h["key"] == coordinates.VERSION, text).otherwise(h["value"]).alias("value")
        ),
    )
    return rows.select("key", "version", "content", marked.alias("headers"))
