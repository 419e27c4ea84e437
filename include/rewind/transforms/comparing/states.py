"""The states of two jobs, key by key: which of them can be compared, and which differ."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from rewind.transforms.comparing.compare import CHANGED, EQUAL, EXTRA, LATE, MISSING
from rewind.transforms.comparing.keyed import WARM_UP

AHEAD, EVICTED = "ahead", "evicted"
"""Classes of keys that are no differences: one job has read more records of them, or has closed them already."""
CLASSES = (EQUAL, MISSING, EXTRA, CHANGED, LATE, AHEAD, EVICTED, WARM_UP)
DIFFERENCES = (MISSING, EXTRA, CHANGED)

_WINDOW = {"start", "end"}
_SESSION_START = "sessionStartTime"
_EXPIRES = "expiresAtMicros"


def timed(rows: DataFrame, horizon: int) -> DataFrame:
    """Return a state (`key`, `value`) with `starts` and `ends`: which event time an entry covers, in milliseconds.

    Both are null where the state does not tell: then nothing closes an entry.

    Args:
        rows: The state of an operator: of windows, in the key or in the value; or of a deduplication that expires.
        horizon: How much event time may lie between two records of one result: how long before its end an entry of a
            deduplication may have begun, in milliseconds.
    """
    window = _window(rows.schema, "key") or _window(rows.schema, "value")
    if window is not None:
        bounds = F.unix_millis(F.col(f"{window}.start")), F.unix_millis(F.col(f"{window}.end"))
    elif _has(rows.schema, "value", _EXPIRES):
        ends = F.floor(F.col(f"value.{_EXPIRES}") / 1000)
        bounds = ends - horizon, ends
    else:
        bounds = F.lit(None).cast("long"), F.lit(None).cast("long")
    return rows.withColumns({"starts": bounds[0], "ends": bounds[1]})


def subject(key: StructType) -> Column:
    """Return what of a `key` names whom an entry is about: a record can move the start of a session."""
    return F.struct(*(F.col(f"key.`{name}`").alias(name) for name in key.names if name != _SESSION_START))


def paired(live: DataFrame, candidate: DataFrame) -> DataFrame:
    """Return both states (`timed`) by key: `key`, the values `l` and `c`, `in_live`, `in_candidate`, `starts`, `ends`.

    Grouped, not joined: keys may be null.
    """
    sides = [rows.withColumn("of", F.lit(side)) for side, rows in (("l", live), ("c", candidate))]
    values = [
        column
        for side, there in (("l", "in_live"), ("c", "in_candidate"))
        for column in (
            F.first(F.when(F.col("of") == side, F.col("value")), ignorenulls=True).alias(side),
            F.bool_or(F.col("of") == side).alias(there),
        )
    ]
    times = F.min("starts").alias("starts"), F.max("ends").alias("ends")
    return sides[0].union(sides[1]).groupBy("key").agg(*values, *times)


def classed(
    pairs: DataFrame, closed_by: int, trusted_from: int, ahead: DataFrame | None, late: DataFrame | None
) -> DataFrame:
    """Return the pairs with their `class`.

    Args:
        pairs: Both states (`paired`).
        closed_by: The higher of both jobs' closing watermarks, in milliseconds since 1970: the job that has it keeps
            nothing that ends there or before.
        trusted_from: From when on results of both are whole, in milliseconds since 1970.
        ahead: The state of the records that only one of them has read; None when there are none.
        late: The state of the records that only one of them left out as late; the same way.
    """
    told = pairs.withColumn("subject", subject(_key(pairs)))
    for name, touched in (("is_ahead", ahead), ("is_late", late)):
        told = _marked(told, touched, name)
    both = F.col("in_live") & F.col("in_candidate")
    difference = F.when(~F.col("in_candidate"), MISSING).when(~F.col("in_live"), EXTRA).otherwise(CHANGED)
    same = both & F.col("l").eqNullSafe(F.col("c"))
    return told.withColumn(
        "class",
        F.when(F.col("is_ahead"), AHEAD)
        .when(F.coalesce(F.col("ends") <= closed_by, F.lit(False)), EVICTED)
        .when(F.coalesce(F.col("starts") < trusted_from, F.lit(False)), WARM_UP)
        .when(same, EQUAL)
        .when(F.col("is_late"), LATE)
        .otherwise(difference),
    )


def _marked(pairs: DataFrame, touched: DataFrame | None, name: str) -> DataFrame:
    if touched is None:
        return pairs.withColumn(name, F.lit(False))
    marks = touched.select(subject(_key(touched)).alias("touched"), F.lit(True).alias(name)).distinct()
    joined = pairs.join(marks, F.col("subject").eqNullSafe(F.col("touched")), "left").drop("touched")
    return joined.withColumn(name, F.coalesce(name, F.lit(False)))


def _key(rows: DataFrame) -> StructType:
    key = rows.schema["key"].dataType
    assert isinstance(key, StructType)
    return key


def _window(schema: StructType, part: str) -> str | None:
    fields = [field for field in _fields(schema, part) if _is_window(field)]
    return f"{part}.`{fields[0].name}`" if fields else None


def _is_window(field: StructField) -> bool:
    kind = field.dataType
    return (
        isinstance(kind, StructType)
        and set(kind.names) == _WINDOW
        and all(isinstance(inner.dataType, TimestampType) for inner in kind.fields)
    )


def _has(schema: StructType, part: str, name: str) -> bool:
    return name in [field.name for field in _fields(schema, part)]


def _fields(schema: StructType, part: str) -> list[StructField]:
    kind = schema[part].dataType
    return list(kind.fields) if isinstance(kind, StructType) else []
