"""Two outputs against each other, row by row: every row gets one class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import ExpectedChange
from rewind.transforms.outputs import CONTENT, COORDINATE, DEAD, ROW

EQUAL, EXPECTED = "equal", "expected"
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"
DEAD_LIVE, DEAD_CANDIDATE = "dead_letter_only_live", "dead_letter_only_candidate"
OPEN = "open"
"""Class of a row at or beyond the ceiling: not yet comparable."""
_CORRUPT = "_corrupt"
DIFFERENCES = (MISSING, EXTRA, CHANGED, DEAD_LIVE, DEAD_CANDIDATE)
"""Classes that fail a verdict."""


@dataclass(frozen=True)
class Sides:
    """The value columns of both outputs, and which of them may differ how."""

    live: StructType
    candidate: StructType
    expected: Sequence[ExpectedChange]


def from_floor(rows: DataFrame, horizon: Mapping[int, OffsetRange]) -> DataFrame:
    """Return the rows whose source offset is at or after the horizon's floor; a partition it lacks is all open."""
    parts = [(F.col("p") == p) & (F.col("o") >= r.start) for p, r in sorted(horizon.items())]
    known = F.col("p").isin(*horizon) if horizon else F.lit(False)
    return rows.where(reduce(Column.__or__, parts, F.lit(False)) | ~known)


def comparable(horizon: Mapping[int, OffsetRange]) -> Column:
    """Return whether a source offset lies below the horizon's ceiling."""
    below = [(F.col("p") == p) & (F.col("o") < r.end) for p, r in sorted(horizon.items())]
    return reduce(Column.__or__, below, F.lit(False))


def classified(live: DataFrame, candidate: DataFrame, sides: Sides, horizon: Mapping[int, OffsetRange]) -> DataFrame:
    """Return the full outer join of two deduplicated outputs with the class of each row.

    Content is compared null-safe: bytes first; where they differ as values of the declared columns, so that
    another order of fields, or another text of the same instant, is no difference.

    Args:
        live: Deduplicated rows of live, from the floor on.
        candidate: The same of the candidate.
        sides: Their columns, and what may differ.
        horizon: What can be compared.

    Returns:
        `COORDINATE`, `class`, `fields` (names of the fields that differ), and the structs `l` and `c` of both
        sides: content, `copies` and `varied`.
    """
    kept = F.struct(*CONTENT, "copies", "varied")
    left = live.select(*COORDINATE, kept.alias("l"), F.lit(True).alias("in_live"))
    right = candidate.select(*COORDINATE, kept.alias("c"), F.lit(True).alias("in_candidate"))
    joined = left.join(right, on=list(COORDINATE), how="full_outer")
    read = joined.withColumns({"live": _values("l", sides.live), "candidate": _values("c", sides.candidate)})
    with_fields = read.withColumn("fields", _fields(sides))
    with_class = with_fields.withColumn("class", F.when(comparable(horizon), _class(sides)).otherwise(OPEN))
    return with_class.select(*COORDINATE, "class", "fields", "l", "c")


def counts(rows: DataFrame, sides: Sides) -> DataFrame:
    """Return what there is of each class, in one pass.

    Returns:
        `class`; `rows`; `repeated` (copies beyond the first, both sides); `varied` (coordinates whose copies
        differ, both sides); `dead` (dead letters of the candidate); and a map `fields` from the name of each
        differing field to its rows.
    """
    named = [
        F.struct(F.lit(n).alias("key"), _sum(F.array_contains("fields", n)).alias("value")) for n in field_names(sides)
    ]
    fields = F.map_filter(F.map_from_entries(F.array(*named)), lambda _, count: count > 0)
    return rows.groupBy("class").agg(
        F.count(F.lit(1)).alias("rows"),
        (_sum(F.col("l.copies") - 1) + _sum(F.col("c.copies") - 1)).alias("repeated"),
        (_sum("l.varied") + _sum("c.varied")).alias("varied"),
        _sum(F.col("c.kind") == DEAD).alias("dead"),
        fields.alias("fields"),
    )


def field_names(sides: Sides) -> list[str]:
    """Return the names that a differing field can have: the key, the value columns, and the value as a whole."""
    return list(dict.fromkeys(["key", *sides.live.names, *sides.candidate.names, "value"]))


def _sum(of: Column | str) -> Column:
    column = F.col(of) if isinstance(of, str) else of
    return F.coalesce(F.sum(column.cast("long")), F.lit(0))


def _values(side: str, schema: StructType) -> Column:
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.col(f"{side}.value").cast("string"), with_corrupt, options)


def _fields(sides: Sides) -> Column:
    """Return the names of the fields that differ in a pair of rows: key, and the value columns."""
    both = (F.col("l.kind") == ROW) & (F.col("c.kind") == ROW)
    names = list(dict.fromkeys([*sides.live.names, *sides.candidate.names]))
    differing = [F.when(~_same("l.key", "c.key"), F.lit("key"))]
    differing += [F.when(~_same_column(name, sides), F.lit(name)) for name in names]
    found = F.filter(F.array(*differing), lambda name: name.isNotNull())
    # A tombstone, or a text that is no such object, has no columns to tell apart: it differs as a whole.
    unread = [F.col(f"{side}.value").isNull() for side in ("l", "c")]
    unread += [F.col(f"{side}.{_CORRUPT}").isNotNull() for side in ("live", "candidate")]
    only_key = F.when(~_same("l.key", "c.key"), F.array(F.lit("key"))).otherwise(F.array().cast("array<string>"))
    whole = F.array(F.lit("value"))
    by_value = F.when(_same("l.value", "c.value"), only_key).when(reduce(Column.__or__, unread), whole).otherwise(found)
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
