"""Two outputs against each other, row by row: every row gets one class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import APPEAR, ENTER, LEAVE, VANISH, ColumnRule, ExpectedChange, RowRule
from rewind.transforms.comparing import row_rules, same_values
from rewind.transforms.logic import column_rules
from rewind.transforms.records.outputs import CONTENT, COORDINATE, DEAD, ROW
from rewind.transforms.values.quoting import column

EQUAL, EXPECTED = "equal", "expected"
MISSING, EXTRA, CHANGED = "missing", "extra", "changed"
DEAD_LIVE, DEAD_CANDIDATE = "dead_letter_only_live", "dead_letter_only_candidate"
OPEN = "open"
"""State of a pair at or beyond the ceiling: not yet comparable."""
LATE = "late"
"""Class of a result that differs by what each job left out as late, and by nothing else."""
SUSPECT = "suspect"
"""State of a pair whose hashes differ, or of which one side is missing: its content has to be looked at."""
PLACED = ("first", "place", "last_place")
_CORRUPT = "_corrupt"
DIFFERENCES = (MISSING, EXTRA, CHANGED, DEAD_LIVE, DEAD_CANDIDATE)
"""Classes that fail a verdict."""
_CHANGE_OF = {EXTRA: APPEAR, MISSING: VANISH, DEAD_LIVE: LEAVE, DEAD_CANDIDATE: ENTER}
"""What became of a row as a whole, by its class."""


@dataclass(frozen=True)
class Sides:
    """The value columns of both outputs, which may differ how, which may be equal without being the same, and rows."""

    live: StructType
    candidate: StructType
    expected: Sequence[ExpectedChange]
    rules: Sequence[ColumnRule] = ()
    row_rules: Sequence[RowRule] = ()


def from_floor(rows: DataFrame, horizon: Mapping[int, OffsetRange]) -> DataFrame:
    """Return the rows whose source offset is at or after the horizon's floor; a partition it lacks is all open."""
    parts = [(F.col("p") == p) & (F.col("o") >= r.start) for p, r in sorted(horizon.items())]
    known = F.col("p").isin(*horizon) if horizon else F.lit(False)
    return rows.where(reduce(Column.__or__, parts, F.lit(False)) | ~known)


def comparable(horizon: Mapping[int, OffsetRange]) -> Column:
    """Return whether a source offset lies below the horizon's ceiling."""
    below = [(F.col("p") == p) & (F.col("o") < r.end) for p, r in sorted(horizon.items())]
    return reduce(Column.__or__, below, F.lit(False))


def paired(live: DataFrame, candidate: DataFrame, horizon: Mapping[int, OffsetRange]) -> DataFrame:
    """Return the full outer join of two sides' fingerprints (`outputs.fingerprints`).

    Returns:
        `COORDINATE`; `state`: `EQUAL`, `OPEN` or `SUSPECT`; `repeated`: copies beyond the first, both sides;
        `varied`: on how many sides the copies differ; `dead`: whether the candidate's is a dead letter; and of each
        side, as `l_…` and `c_…`, where its rows stand (`PLACED`).
    """
    names = ("hash", "dead", "copies", "varied", *PLACED)
    sides = [
        rows.select(*COORDINATE, *(F.col(name).alias(f"{side}_{name}") for name in names))
        for side, rows in (("l", live), ("c", candidate))
    ]
    joined = sides[0].join(sides[1], on=list(COORDINATE), how="full_outer")
    same = F.col("l_hash").eqNullSafe(F.col("c_hash"))
    repeated = [F.coalesce(F.col(f"{side}_copies") - 1, F.lit(0)) for side in ("l", "c")]
    varied = [F.coalesce(F.col(f"{side}_varied").cast("int"), F.lit(0)) for side in ("l", "c")]
    return joined.select(
        *COORDINATE,
        F.when(~comparable(horizon), OPEN).when(same, EQUAL).otherwise(SUSPECT).alias("state"),
        (repeated[0] + repeated[1]).alias("repeated"),
        (varied[0] + varied[1]).alias("varied"),
        F.coalesce("c_dead", F.lit(False)).alias("dead"),
        *(f"{side}_{name}" for side in ("l", "c") for name in PLACED),
    )


def beyond(pairs: DataFrame, side: str) -> DataFrame:
    """Return where the rows beyond the ceiling stand in the output of a side, `l` or `c`.

    Returns:
        `place` and `last_place`: a span of places (`outputs.place`); `first`: none of the rows whose copies stand
        within that span stands at a lower offset.
    """
    rows = pairs.where((F.col("state") == OPEN) & F.col(f"{side}_first").isNotNull())
    spans = [F.col(f"{side}_{name}").alias(name) for name in ("place", "last_place")]
    return rows.groupBy(*spans).agg(F.min(f"{side}_first").alias("first"))


def totals(pairs: DataFrame) -> DataFrame:
    """Return per `state` of `paired`: `rows`, `repeated`, `varied` and `dead`."""
    sums = [F.sum(F.col(name).cast("long")).alias(name) for name in ("repeated", "varied", "dead")]
    return pairs.groupBy("state").agg(F.count(F.lit(1)).alias("rows"), *sums)


def only(rows: DataFrame, coordinates: DataFrame, few: bool) -> DataFrame:
    """Return the located rows of some coordinates; where those are few, without a shuffle of the rows."""
    wanted = coordinates.select(*COORDINATE)
    return rows.join(F.broadcast(wanted) if few else wanted, on=list(COORDINATE), how="left_semi")


def classified(live: DataFrame, candidate: DataFrame, sides: Sides) -> DataFrame:
    """Return the full outer join of two deduplicated outputs with the class of each row.

    Args:
        live: Deduplicated rows of live within the horizon.
        candidate: The same of the candidate.
        sides: Their columns, and what may differ.

    Returns:
        `COORDINATE`, `class`, `fields` (names of the fields that differ), and the structs `l` and `c` of both
        sides' content.
    """
    kept = F.struct(*CONTENT)
    left = live.select(*COORDINATE, kept.alias("l"), F.lit(True).alias("in_live"))
    right = candidate.select(*COORDINATE, kept.alias("c"), F.lit(True).alias("in_candidate"))
    joined = left.join(right, on=list(COORDINATE), how="full_outer")
    return with_class(joined, sides).select(*COORDINATE, "class", "fields", "l", "c")


def with_class(joined: DataFrame, sides: Sides) -> DataFrame:
    """Return pairs of rows with their `class` and `fields`, the names of the fields that differ.

    Content is compared null-safe: bytes first; where they differ as values of the declared columns, so that
    another order of fields, or another text of the same instant, is no difference.

    Args:
        joined: The structs `l` and `c` of both sides' content (`outputs.CONTENT`), and whether it is `in_live` and
            `in_candidate`.
        sides: Their columns, and what may differ.
    """
    read = joined.withColumns({"live": _values("l", sides.live), "candidate": _values("c", sides.candidate)})
    with_fields = read.withColumn("fields", _fields(sides))
    classed = with_fields.withColumn("class", _class(sides))
    return row_rules.applied(classed, sides.row_rules, _CHANGE_OF, EXPECTED)


def counts(rows: DataFrame, sides: Sides) -> DataFrame:
    """Return what there is of each class, in one pass: `class`, `rows`, and a map `fields` from field to rows."""
    named = [
        F.struct(F.lit(n).alias("key"), _sum(F.array_contains("fields", n)).alias("value")) for n in field_names(sides)
    ]
    fields = F.map_filter(F.map_from_entries(F.array(*named)), lambda _, count: count > 0)
    return rows.groupBy("class").agg(F.count(F.lit(1)).alias("rows"), fields.alias("fields"))


def field_names(sides: Sides) -> list[str]:
    """Return the names that a differing field can have: the key, the value columns, and the value as a whole.

    A row that a rule of rows expected has that rule's label in their place.
    """
    labels = [rule.label for rule in sides.row_rules]
    return list(dict.fromkeys(["key", *sides.live.names, *sides.candidate.names, "value", *labels]))


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column.cast("long")), F.lit(0))


def _values(side: str, schema: StructType) -> Column:
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = F.from_json(F.col(f"{side}.value").cast("string"), with_corrupt, options)
    # A dead letter holds the record as it came, which is no row.
    return F.when(F.col(f"{side}.kind") == ROW, read)


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
    both = name in sides.live.names and name in sides.candidate.names
    if not both:
        return column(name, "live" if name in sides.live.names else "candidate").isNull()
    left, right = column(name, "live"), column(name, "candidate")
    rule, kind = _rule(name, sides), sides.live[name].dataType
    if rule is None:
        return same_values.same(left, right, kind, sides.candidate[name].dataType)
    return column_rules.equal(rule, left, right, kind)


def _rule(name: str, sides: Sides) -> ColumnRule | None:
    """Return the rule of a column; none counts where the outputs do not both have it, with one type."""
    both = name in sides.live.names and name in sides.candidate.names
    if not both or sides.live[name].dataType != sides.candidate[name].dataType:
        return None
    return next((rule for rule in sides.rules if rule.column == name), None)


def _same(left: str, right: str) -> Column:
    return F.col(left).eqNullSafe(F.col(right))
