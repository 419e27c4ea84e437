"""Two outputs of many rows that are equal but for what is planted, and what a comparison must count of it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructType

from rewind.core.offsets import OffsetRange, Ranges
from rewind.core.pipeline import (
    APPEAR,
    ENTER,
    INSTANT,
    LEAVE,
    TOLERANCE,
    UNORDERED,
    VANISH,
    VOLATILE,
    ColumnRule,
    ExpectedChange,
    RowRule,
)
from rewind.steps.compare.comparison import compared_rows
from rewind.transforms.comparing.compare import Sides
from tests.support import planting
from tests.support.planting import SAME, Kind, Row, changed, equal, told, wanted

PARTITIONS = 3
FIRST = 2**31 - 2_000
"""The first offset: those of the rows go beyond what fits 32 bits."""
EDGE = 1 << 10
"""Offsets lie at an edge of what may be hashed together when they are near a multiple of it."""
SCHEMA = (
    StructType()
    .add("id", "long")
    .add("page", "string")
    .add("score", "double")
    .add("total", "long")
    .add("tags", ArrayType(StringType()))
    .add("at", "string")
    .add("trace", "string")
)
ROW_RULES = (
    RowRule(APPEAR, "candidate.page = 'appears'"),
    RowRule(VANISH, "live.page = 'vanishes'"),
    RowRule(LEAVE, "record = 'leaves'"),
    RowRule(ENTER, "reason = 'enters'"),
)
SIDES = Sides(
    SCHEMA,
    SCHEMA,
    (ExpectedChange("total", "candidate.total = live.total + 1"),),
    (
        ColumnRule("score", TOLERANCE, relative=0.01),
        ColumnRule("tags", UNORDERED),
        ColumnRule("at", INSTANT),
        ColumnRule("trace", VOLATILE),
    ),
    ROW_RULES,
)
CONTENT = {
    "key": "cast(cast({s} AS STRING) AS BINARY)",
    "id": "{s}",
    "page": "concat('page-', {s} % 97)",
    "score": "({s} % 7) * 10 + 1.5D",
    "total": "{s} * 3",
    "tags": "array('a', 'b', concat('c', {s} % 5))",
    "at": "date_format(timestamp_seconds(1756944000 + {s}), \"yyyy-MM-dd'T'HH:mm:ss'Z'\")",
    "trace": "md5(cast({s} AS STRING))",
}
"""What a row holds, from a number, `s` for its own: rows of neighbouring numbers differ in all columns."""
WHERE = {"kind": "'row'", "reason": "cast(null AS STRING)", "repair": "0", "out_offset": "o * 4", "text": "''"}
"""The rest of a row; `text` is the value of a dead letter, or that of a row unless it is empty; null is a tombstone."""

LOCATED = ("p", "o", "n", "repair", "kind", "key", "value", "reason", "out_partition", "out_offset")
DEAD: Row = {"kind": "'dead'", "reason": "'bad'", "text": "'torn'"}


NULL, SWAPPED = "cast(null AS STRING)", "swapped"
TAGS, AT, SCORE = (CONTENT[name].format(s="s") for name in ("tags", "at", "score"))
KINDS: dict[str, Kind] = {
    "missing": Kind(candidate=(), counts={"missing": 1}),
    "extra": Kind(live=(), counts={"extra": 1}),
    "changed": changed("page", page="'other'"),
    "changed key": changed("key", key="cast('other' AS BINARY)"),
    "null key": changed("key", key="cast(null AS BINARY)"),
    "two fields": changed("page", "id", page="'other'", id="s + 1"),
    "null": changed("page", page=NULL),
    "null in both": Kind(live=({"page": NULL},), candidate=({"page": NULL},)),
    "tombstone": changed("value", text=NULL),
    "tombstone in both": Kind(live=({"text": NULL},), candidate=({"text": NULL},)),
    "repeated": Kind(candidate=(SAME, {"out_offset": "o * 4 + 1"}), counts={"equal": 1, "repeated": 1}),
    # An even number of more copies is nothing to XOR.
    "repeated twice": Kind(
        candidate=(SAME, {"out_offset": "o * 4 + 1"}, {"out_offset": "o * 4 + 2"}), counts={"equal": 1, "repeated": 2}
    ),
    "repeated in both": Kind(
        live=(SAME, {"out_offset": "o * 4 + 1"}),
        candidate=(SAME, {"out_offset": "o * 4 + 1"}),
        counts={"equal": 1, "repeated": 2},
    ),
    "repeated differently": Kind(
        candidate=({"page": "'other'"}, {"out_offset": "o * 4 + 1"}),
        counts={"equal": 1, "repeated": 1, "repeated_differently": 1},
    ),
    "repaired": Kind(candidate=({"page": "'other'", "out_offset": "o * 4 + 1"}, {"repair": "1"})),
    "dead in live": Kind(live=(DEAD,), counts={"dead_letter_only_live": 1}),
    "dead in live, else nothing": Kind(live=(DEAD,), candidate=(), counts={"dead_letter_only_live": 1}),
    "dead in the candidate": Kind(candidate=(DEAD,), counts={"dead_letter_only_candidate": 1, "dead_letters": 1}),
    "dead in both": Kind(live=(DEAD,), candidate=(DEAD,), counts={"equal": 1, "dead_letters": 1}),
    "dead for another reason": Kind(
        live=(DEAD,), candidate=({**DEAD, "reason": "'worse'"},), counts={"changed": 1, "dead_letters": 1}
    ),
    "as expected": Kind(candidate=({"total": "s * 3 + 1"},), counts={"expected": 1}, fields=("total",)),
    "not as expected": changed("total", total="s * 3 + 2"),
    "more than expected": changed("total", "page", total="s * 3 + 1", page="'other'"),
    "within tolerance": equal(score=f"({SCORE}) * 1.005"),
    "outside tolerance": changed("score", score=f"({SCORE}) * 1.02"),
    "NaN in both": Kind(live=({"score": "double('NaN')"},), candidate=({"score": "double('NaN')"},)),
    "NaN": changed("score", score="double('NaN')"),
    "negative zero": Kind(live=({"score": "0D"},), candidate=({"score": "-0.0D"},)),
    "volatile": equal(trace="'another'"),
    "another order": equal(tags=f"reverse({TAGS})"),
    "another element": changed("tags", tags="array('a', 'b', 'd')"),
    "once more in an array": changed("tags", tags=f"concat({TAGS}, array('a'))"),
    "same instant": equal(at=f"replace({AT}, 'Z', '+00:00')"),
    "another instant": changed("at", at=f"replace({AT}, 'Z', '+01:00')"),
    "appears": Kind(live=(), candidate=({"page": "'appears'"},), counts={"expected": 1}, fields=(ROW_RULES[0].label,)),
    "vanishes": Kind(
        live=({"page": "'vanishes'"},), candidate=(), counts={"expected": 1}, fields=(ROW_RULES[1].label,)
    ),
    "leaves": Kind(live=({**DEAD, "text": "'leaves'"},), counts={"expected": 1}, fields=(ROW_RULES[2].label,)),
    "enters": Kind(
        candidate=({**DEAD, "reason": "'enters'"},),
        counts={"expected": 1, "dead_letters": 1},
        fields=(ROW_RULES[3].label,),
    ),
    # Of two neighbouring numbers, when it is planted at both.
    SWAPPED: changed("key", "id", "page", "score", "total", "tags", "at", s="(s + if(s % 2 = 0, 1, -1))"),
}


def frames(spark: SparkSession, count: int, kind: Column) -> tuple[DataFrame, DataFrame]:
    """Return the located rows of live and of the candidate.

    Args:
        spark: The session.
        count: How many coordinates, a multiple of `PARTITIONS`.
        kind: The number of the kind (in `KINDS`) that is planted at the number `s`; null for none.
    """
    each = spark.range(count, numPartitions=2).select(
        F.col("id").alias("s"),
        (F.col("id") % PARTITIONS).cast("int").alias("p"),
        (F.lit(FIRST) + F.floor(F.col("id") / PARTITIONS)).alias("o"),
    )
    numbered = each.withColumn("planted", kind)
    return _side(numbered, [made.live for made in KINDS.values()]), _side(
        numbered, [made.candidate for made in KINDS.values()]
    )


def _side(numbered: DataFrame, rows: Sequence[Sequence[Row]]) -> DataFrame:
    made = numbered.select("p", "o", F.inline(planting.rows(rows, {**CONTENT, **WHERE})))
    value = F.to_json(F.struct(*SCHEMA.names))
    text = F.when(F.col("text") == "", value).otherwise(F.col("text"))
    places = {"n": F.lit(0), "value": text.cast("binary"), "out_partition": F.col("p")}
    return made.withColumns(places).select(*LOCATED)


def horizon(count: int, open_rows: int = 0) -> Ranges:
    """Return the horizon of all coordinates but so many at the end of the first partition."""
    end = FIRST + count // PARTITIONS
    return {p: OffsetRange(FIRST, end - (open_rows if p == 0 else 0)) for p in range(PARTITIONS)}


def check_each(spark: SparkSession, count: int, each: int) -> dict[str, object]:
    """Compare with so many of each kind planted, and as many rows open; return what was counted, as it must be."""
    kind = planting.spread(list(KINDS), each, count - PARTITIONS * each, SWAPPED)
    planted = {name: each * (2 if name == SWAPPED else 1) for name in KINDS}
    return _checked(spark, count, kind, planted, each)


def check_half(spark: SparkSession, count: int) -> dict[str, object]:
    """Compare with every other row changed; return what was counted, as it must be."""
    kind = F.when(F.col("s") % 2 == 0, F.lit(list(KINDS).index("changed")))
    return _checked(spark, count, kind, {"changed": -(-count // 2)})


def check_equal(spark: SparkSession, count: int) -> dict[str, object]:
    """Compare unchanged rows; return what was counted: that all are equal."""
    return _checked(spark, count, F.lit(None).cast("int"), {})


def _checked(
    spark: SparkSession, count: int, kind: Column, planted: Mapping[str, int], open_rows: int = 0
) -> dict[str, object]:
    both = frames(spark, count, kind)
    found = told(compared_rows(both[0], both[1], SIDES, horizon(count, open_rows)))
    assert found == wanted(count - open_rows, KINDS, planted, open=open_rows)
    return found


@dataclass(frozen=True)
class Mutation:
    """One or two coordinates that are not as the others.

    Attributes:
        name: Its kind.
        numbers: Where it is planted.
    """

    name: str
    numbers: tuple[int, ...]


def mutations(seed: int, how_many: int, count: int) -> list[Mutation]:
    """Draw mutations: of each kind in turn, in any partition, at any offset, or at the edge of offsets hashed together.

    Args:
        seed: Of what is drawn.
        how_many: Mutations.
        count: Coordinates that they are drawn from.
    """
    drawn, made = random.Random(seed), []
    offsets = count // PARTITIONS
    edges = [0, offsets - 1, *(at for at in range(offsets) if (FIRST + at) % EDGE in (0, EDGE - 1))]
    for name in (list(KINDS) * (how_many // len(KINDS) + 1))[:how_many]:
        partition = drawn.randrange(PARTITIONS)
        at = drawn.choice(edges) if drawn.random() < 0.5 else drawn.randrange(offsets)
        number = at * PARTITIONS + partition
        # Of a pair both lie below the end.
        pair = (number - number % 2, number - number % 2 + 1)
        made.append(Mutation(name, pair if name == SWAPPED and pair[1] < count else (number,)))
    return made


def check_mutation(spark: SparkSession, count: int, mutation: Mutation) -> None:
    """Compare with one mutation planted; what is counted is that, and nothing else."""
    kind = F.when(F.col("s").isin(*mutation.numbers), list(KINDS).index(mutation.name))
    _checked(spark, count, kind, {mutation.name: len(mutation.numbers)})
