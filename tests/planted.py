"""Two outputs of many rows that are equal but for what is planted, and what a comparison must count of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from rewind.steps.comparison import Found, compared_rows
from rewind.transforms.compare import Sides

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

Row = Mapping[str, str]
"""What of a row is otherwise, as SQL; `s` is the number that its content is made from."""
SAME: Row = {}
DEAD: Row = {"kind": "'dead'", "reason": "'bad'", "text": "'torn'"}


@dataclass(frozen=True)
class Kind:
    """One way in which the rows of a coordinate can stand to each other.

    Attributes:
        live: Rows of live; none for none.
        candidate: Rows of the candidate.
        counts: What is counted of each coordinate.
        fields: Names of the fields that differ, of that class.
    """

    live: Sequence[Row] = (SAME,)
    candidate: Sequence[Row] = (SAME,)
    counts: Mapping[str, int] = field(default_factory=lambda: {"equal": 1})
    fields: Sequence[str] = ()


def _changed(*fields: str, **columns: str) -> Kind:
    return Kind(candidate=(columns,), counts={"changed": 1}, fields=fields)


def _equal(**columns: str) -> Kind:
    return Kind(candidate=(columns,))


NULL, SWAPPED = "cast(null AS STRING)", "swapped"
TAGS, AT, SCORE = (CONTENT[name].format(s="s") for name in ("tags", "at", "score"))
KINDS: dict[str, Kind] = {
    "missing": Kind(candidate=(), counts={"missing": 1}),
    "extra": Kind(live=(), counts={"extra": 1}),
    "changed": _changed("page", page="'other'"),
    "changed key": _changed("key", key="cast('other' AS BINARY)"),
    "null key": _changed("key", key="cast(null AS BINARY)"),
    "two fields": _changed("page", "id", page="'other'", id="s + 1"),
    "null": _changed("page", page=NULL),
    "null in both": Kind(live=({"page": NULL},), candidate=({"page": NULL},)),
    "tombstone": _changed("value", text=NULL),
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
    "not as expected": _changed("total", total="s * 3 + 2"),
    "more than expected": _changed("total", "page", total="s * 3 + 1", page="'other'"),
    "within tolerance": _equal(score=f"({SCORE}) * 1.005"),
    "outside tolerance": _changed("score", score=f"({SCORE}) * 1.02"),
    "NaN in both": Kind(live=({"score": "double('NaN')"},), candidate=({"score": "double('NaN')"},)),
    "NaN": _changed("score", score="double('NaN')"),
    "negative zero": Kind(live=({"score": "0D"},), candidate=({"score": "-0.0D"},)),
    "volatile": _equal(trace="'another'"),
    "another order": _equal(tags=f"reverse({TAGS})"),
    "another element": _changed("tags", tags="array('a', 'b', 'd')"),
    "once more in an array": _changed("tags", tags=f"concat({TAGS}, array('a'))"),
    "same instant": _equal(at=f"replace({AT}, 'Z', '+00:00')"),
    "another instant": _changed("at", at=f"replace({AT}, 'Z', '+01:00')"),
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
    SWAPPED: _changed("key", "id", "page", "score", "total", "tags", "at", s="(s + if(s % 2 = 0, 1, -1))"),
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
    same, none = F.array(_row(SAME)), F.filter(F.array(_row(SAME)), lambda _: F.lit(False))
    found = same
    for number, made in enumerate(rows):
        if list(made) != [SAME]:
            there = F.array(*map(_row, made)) if made else none
            found = F.when(F.col("planted") == number, there).otherwise(found)
    told = numbered.select("p", "o", F.inline(found))
    value = F.to_json(F.struct(*SCHEMA.names))
    text = F.when(F.col("text") == "", value).otherwise(F.col("text"))
    return told.select(
        "p",
        "o",
        F.lit(0).alias("n"),
        "repair",
        "kind",
        "key",
        text.cast("binary").alias("value"),
        "reason",
        F.col("p").alias("out_partition"),
        "out_offset",
    )


def _row(row: Row) -> Column:
    number = row.get("s", "s")
    content = {name: row.get(name, sql.format(s=number)) for name, sql in CONTENT.items()}
    rest = {name: row.get(name, sql) for name, sql in WHERE.items()}
    return F.struct(*(F.expr(sql).alias(name) for name, sql in {**content, **rest}.items()))


def horizon(count: int, open_rows: int = 0) -> Ranges:
    """Return the horizon of all coordinates but so many at the end of the first partition."""
    end = FIRST + count // PARTITIONS
    return {p: OffsetRange(FIRST, end - (open_rows if p == 0 else 0)) for p in range(PARTITIONS)}


def of_each(count: int, each: int, open_rows: int) -> Column:
    """Return the kind that stands at a number when so many of each kind are planted, all over."""
    step = (count - PARTITIONS * open_rows) // (each * len(KINDS))
    # Neighbours take each other's place, so that a kind has a pair of numbers to itself.
    step -= step % 2
    assert step >= 2, "too few rows"
    place = F.floor(F.col("s") / step)
    swapped = list(KINDS).index(SWAPPED)
    kind = (place % len(KINDS)).cast("int")
    first, second = F.col("s") % step == 0, F.col("s") % step == 1
    return F.when((place < each * len(KINDS)) & (first | (second & (kind == swapped))), kind)


def wanted(count: int, planted: Mapping[str, int], open_rows: int = 0) -> dict[str, object]:
    """Return the counts that are not 0, and the fields, that a comparison must give when so many are planted."""
    counts: Counter[str] = Counter(equal=count - open_rows - sum(planted.values()), rows=count - open_rows)
    fields: dict[str, Counter[str]] = {}
    for name, coordinates in planted.items():
        made = KINDS[name]
        counts.update({kind: number * coordinates for kind, number in made.counts.items()})
        for named in made.fields:
            (of,) = made.counts.keys() - {"dead_letters"}
            fields.setdefault(of, Counter())[named] += coordinates
    counts["open"] = open_rows
    told = {kind: number for kind, number in counts.items() if number}
    return {**told, "fields": {kind: dict(named) for kind, named in fields.items()}}


def told(found: Found) -> dict[str, object]:
    """Return what was found in the same form."""
    counts = {kind: number for kind, number in found.counts.items() if number}
    return {**counts, "fields": {kind: dict(named) for kind, named in found.fields.items()}}


def check_each(spark: SparkSession, count: int, each: int) -> dict[str, object]:
    """Compare with so many of each kind planted, and as many rows open; return what was counted, as it must be."""
    both = frames(spark, count, of_each(count, each, each))
    found = told(compared_rows(both[0], both[1], SIDES, horizon(count, each)))
    planted = {name: each * (2 if name == SWAPPED else 1) for name in KINDS}
    assert found == wanted(count, planted, each)
    return found


def check_half(spark: SparkSession, count: int) -> dict[str, object]:
    """Compare with every other row changed; return what was counted, as it must be."""
    number = list(KINDS).index("changed")
    both = frames(spark, count, F.when(F.col("s") % 2 == 0, F.lit(number)))
    found = told(compared_rows(both[0], both[1], SIDES, horizon(count)))
    assert found == wanted(count, {"changed": -(-count // 2)})
    return found


def check_equal(spark: SparkSession, count: int) -> dict[str, object]:
    """Compare unchanged rows; return what was counted: that all are equal."""
    both = frames(spark, count, F.lit(None).cast("int"))
    found = told(compared_rows(both[0], both[1], SIDES, horizon(count)))
    assert found == wanted(count, {})
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
    both = frames(spark, count, kind)
    found = told(compared_rows(both[0], both[1], SIDES, horizon(count)))
    assert found == wanted(count, {mutation.name: len(mutation.numbers)}), mutation
