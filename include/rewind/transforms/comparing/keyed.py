"""Keyed results as they are compared: the newest version of each key, over the windows closed for both jobs."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from rewind.core import coordinates
from rewind.transforms.comparing.compare import OPEN, PLACED
from rewind.transforms.records.outputs import ROW, header

WARM_UP, JUDGED = "warm_up", "judged"
"""States of a key beside `OPEN`: it covers event time from before the first trusted window, or it can be compared."""


@dataclass(frozen=True)
class Bounds:
    """Which results of two jobs can be compared; instants in milliseconds since 1970.

    Attributes:
        trusted_from: Results that start earlier may lack records that came before a job's own start.
        closed_after: Results that end at or before this instant were compared before.
        closed_by: Results that end later are not closed for both.
        touches: For a repair, the event time whose results it made, `[from, to)`: others are no business of it.
    """

    trusted_from: int
    closed_after: int
    closed_by: int
    touches: tuple[int, int] | None = None


def located(kafka: DataFrame, topic_id: str, starts: str, ends: str) -> DataFrame:
    """Return the rows of a keyed output that were made from one source topic.

    Args:
        kafka: Rows of the Kafka source, with headers.
        topic_id: Id of the source topic.
        starts: The value's field with the first instant that a result covers.
        ends: The field with the instant at which it closes.

    Returns:
        `key`, `value`, `version`, `starts` and `ends` in milliseconds since 1970, `out_partition`, `out_offset`.
    """
    fields = StructType([StructField(name, TimestampType()) for name in dict.fromkeys([starts, ends])])
    origin = F.coalesce(header(coordinates.SPAN, 3), header(coordinates.SOURCE, 3))
    told = kafka.select(
        "key",
        "value",
        F.col("partition").alias("out_partition"),
        F.col("offset").alias("out_offset"),
        header(coordinates.VERSION, 2).alias("version"),
        origin.alias("origin"),
        F.from_json(F.col("value").cast("string"), fields).alias("at"),
    )
    mine = told.where(F.col("origin").startswith(f"{topic_id}:") & F.col("version").isNotNull())
    bounds = [F.unix_millis(F.col("at")[name]).alias(side) for name, side in ((starts, "starts"), (ends, "ends"))]
    return mine.select("key", "value", "version", *bounds, "out_partition", "out_offset")


def newest(rows: DataFrame) -> DataFrame:
    """Return one row a key: its newest version.

    Returns:
        `key`, `value`, `starts`, `ends`; `copies` of that version; `varied`, whether those differ; and of all its
        versions `first`, the lowest offset in the output, `place` and `last_place`, the lowest and the highest output
        partition.
    """
    by_version = rows.groupBy("key", "version").agg(
        F.count(F.lit(1)).alias("copies"),
        F.max_by(F.struct("value", "starts", "ends"), "out_offset").alias("content"),
        (F.max(F.xxhash64("value")) != F.min(F.xxhash64("value"))).alias("varied"),
        F.min("out_offset").alias("first"),
        F.min("out_partition").alias("place"),
        F.max("out_partition").alias("last_place"),
    )
    kept = F.struct("content", "copies")
    by_key = by_version.groupBy("key").agg(
        F.max_by(kept, "version").alias("kept"),
        F.bool_or("varied").alias("varied"),
        F.min("first").alias("first"),
        F.min("place").alias("place"),
        F.max("last_place").alias("last_place"),
    )
    return by_key.select("key", "kept.content.*", "kept.copies", "varied", *PLACED)


def paired(live: DataFrame, candidate: DataFrame, bounds: Bounds) -> DataFrame:
    """Return the full outer join of both sides' newest versions, by key.

    Returns:
        `key`; `state`: `OPEN`, `WARM_UP` or `JUDGED`; the structs `l` and `c` in the form of `outputs.CONTENT`;
        `in_live`, `in_candidate`; `starts` and `ends` of both together; `repeated` and `varied`; and of each side, as
        `l_…` and `c_…`, where its rows stand (`PLACED`).
    """
    sides = [
        rows.select(
            "key",
            _content().alias(side),
            F.lit(True).alias(name),
            *(F.col(column).alias(f"{side}_{column}") for column in ("starts", "ends", "copies", "varied", *PLACED)),
        )
        for side, name, rows in (("l", "in_live", live), ("c", "in_candidate", candidate))
    ]
    joined = sides[0].join(sides[1], on="key", how="full_outer")
    repeated = [F.coalesce(F.col(f"{side}_copies") - 1, F.lit(0)) for side in ("l", "c")]
    varied = [F.coalesce(F.col(f"{side}_varied").cast("int"), F.lit(0)) for side in ("l", "c")]
    starts, ends = F.least("l_starts", "c_starts"), F.greatest("l_ends", "c_ends")
    wanted = ends.isNull() | (ends > bounds.closed_after)
    if bounds.touches is not None:
        wanted = wanted & (starts < bounds.touches[1]) & (ends > bounds.touches[0])
    return joined.where(wanted).select(
        "key",
        _state(starts, ends, bounds).alias("state"),
        "l",
        "c",
        F.coalesce("in_live", F.lit(False)).alias("in_live"),
        F.coalesce("in_candidate", F.lit(False)).alias("in_candidate"),
        starts.alias("starts"),
        ends.alias("ends"),
        (repeated[0] + repeated[1]).alias("repeated"),
        (varied[0] + varied[1]).alias("varied"),
        *(f"{side}_{name}" for side in ("l", "c") for name in PLACED),
    )


def _state(starts: Column, ends: Column, bounds: Bounds) -> Column:
    # A result whose window cannot be read can never be proved closed, and must not be left out in silence.
    unreadable = starts.isNull() | ends.isNull()
    state = F.when(unreadable, JUDGED).when(ends > bounds.closed_by, OPEN)
    return state.when(starts < bounds.trusted_from, WARM_UP).otherwise(JUDGED)


def kept_versions(values: DataFrame) -> DataFrame:
    """Return keys and values in the form in which `paired` holds a side: `key` and the struct `side`."""
    return values.select("key", _content().alias("side"))


def _content() -> Column:
    """Return a result in the form of `outputs.CONTENT`, in which both kinds of outputs are classified."""
    return F.struct(F.lit(ROW).alias("kind"), "key", "value", F.lit(None).cast("string").alias("reason"))
