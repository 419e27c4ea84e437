"""Two outputs against each other, row by row: every row gets one class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import ExpectedChange
from rewind.transforms.outputs import CONTENT, COORDINATE, DEAD, ROW

EQUAL, EXPECTED = "equal", "expected"
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"
DEAD_LIVE, DEAD_CANDIDATE = "dead_letter_only_live", "dead_letter_only_candidate"
DIFFERENCES = (MISSING, EXTRA, CHANGED, DEAD_LIVE, DEAD_CANDIDATE)
"""Classes that fail a verdict."""


@dataclass(frozen=True)
class Sides:
    """The value columns of both outputs, and which of them may differ how."""

    live: StructType
    candidate: StructType
    expected: Sequence[ExpectedChange]


def within(rows: DataFrame, horizon: Mapping[int, OffsetRange]) -> DataFrame:
    """Return the rows whose source offset lies in the horizon."""
    parts = [
        (F.col("p") == p) & (F.col("o") >= r.start) & (F.col("o") < r.end) for p, r in sorted(horizon.items()) if len(r)
    ]
    return rows.where(reduce(Column.__or__, parts, F.lit(False)))


def beyond(rows: DataFrame, ceiling: Mapping[int, int]) -> DataFrame:
    """Return the rows at or after the ceiling: not yet comparable."""
    parts = [(F.col("p") == p) & (F.col("o") >= o) for p, o in sorted(ceiling.items())]
    known = F.col("p").isin(*ceiling) if ceiling else F.lit(False)
    return rows.where(reduce(Column.__or__, parts, F.lit(False)) | ~known)


def classified(live: DataFrame, candidate: DataFrame, sides: Sides) -> DataFrame:
    """Return the full outer join of two deduplicated outputs with the class of each row.

    Content is compared null-safe: bytes first; where they differ as values of the declared columns, so that
    another order of fields, or another text of the same instant, is no difference.

    Returns:
        `COORDINATE`, `class`, `fields` (names of the fields that differ), and the structs `l` and `c` of both
        sides' content.
    """
    left = live.select(*COORDINATE, F.struct(*CONTENT).alias("l"), F.lit(True).alias("in_live"))
    right = candidate.select(*COORDINATE, F.struct(*CONTENT).alias("c"), F.lit(True).alias("in_candidate"))
    joined = left.join(right, on=list(COORDINATE), how="full_outer")
    read = joined.withColumns({"live": _values("l", sides.live), "candidate": _values("c", sides.candidate)})
    with_fields = read.withColumn("fields", _fields(sides))
    return with_fields.withColumn("class", _class(sides)).select(*COORDINATE, "class", "fields", "l", "c")


def counts(rows: DataFrame) -> DataFrame:
    """Return rows by class, and by class and field: `class`, `field` (null for the class itself), `count`."""
    by_class = rows.groupBy("class").count().select("class", F.lit(None).cast("string").alias("field"), "count")
    fields = rows.where(F.size("fields") > 0).select("class", F.explode("fields").alias("field"))
    return by_class.unionByName(fields.groupBy("class", "field").count())


def _values(side: str, schema: StructType) -> Column:
    # A value that is no such object (a dead letter, a tombstone) is read as null and compared by its bytes.
    return F.from_json(F.col(f"{side}.value").cast("string"), schema, {"mode": "PERMISSIVE"})


def _fields(sides: Sides) -> Column:
    """Return the names of the fields that differ in a pair of rows: key, and the value columns."""
    both = (F.col("l.kind") == ROW) & (F.col("c.kind") == ROW)
    names = list(dict.fromkeys([*sides.live.names, *sides.candidate.names]))
    differing = [F.when(~_same("l.key", "c.key"), F.lit("key"))]
    differing += [F.when(~_same_column(name, sides), F.lit(name)) for name in names]
    found = F.filter(F.array(*differing), lambda name: name.isNotNull())
    tombstones = F.col("l.value").isNull() | F.col("c.value").isNull()
    only_key = F.when(~_same("l.key", "c.key"), F.array(F.lit("key"))).otherwise(F.array().cast("array<string>"))
    whole = F.array(F.lit("value"))
    by_value = F.when(_same("l.value", "c.value"), only_key).when(tombstones, whole).otherwise(found)
    return F.when(both, by_value).otherwise(F.array().cast("array<string>"))


def _class(sides: Sides) -> Column:
    live, candidate = F.coalesce("in_live", F.lit(False)), F.coalesce("in_candidate", F.lit(False))
    dead_live, dead_candidate = F.col("l.kind") == DEAD, F.col("c.kind") == DEAD
    one_sided = F.when(live & ~candidate, F.when(dead_live, DEAD_LIVE).otherwise(MISSING))
    one_sided = one_sided.when(candidate & ~live, F.when(dead_candidate, DEAD_CANDIDATE).otherwise(EXTRA))
    mixed = one_sided.when(dead_live & ~dead_candidate, DEAD_LIVE).when(dead_candidate & ~dead_live, DEAD_CANDIDATE)
    letters = mixed.when(dead_live & dead_candidate, F.when(_same_content(), EQUAL).otherwise(CHANGED))
    return letters.when(F.size("fields") == 0, EQUAL).when(_all_expected(sides), EXPECTED).otherwise(CHANGED)


def _all_expected(sides: Sides) -> Column:
    declared = [F.lit(change.column) for change in sides.expected]
    if not declared:
        return F.lit(False)
    only = F.size(F.array_except("fields", F.array(*declared))) == 0
    rules = [
        ~F.array_contains("fields", change.column) | F.coalesce(F.expr(change.rule), F.lit(False))
        for change in sides.expected
        if change.rule
    ]
    return reduce(Column.__and__, rules, only)


def _same_content() -> Column:
    return reduce(Column.__and__, [_same(f"l.{name}", f"c.{name}") for name in ("key", "value", "reason")])


def _same_column(name: str, sides: Sides) -> Column:
    left = F.col(f"live.`{name}`") if name in sides.live.names else F.lit(None)
    right = F.col(f"candidate.`{name}`") if name in sides.candidate.names else F.lit(None)
    return left.eqNullSafe(right)


def _same(left: str, right: str) -> Column:
    return F.col(left).eqNullSafe(F.col(right))
