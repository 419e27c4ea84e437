"""Rows of two outputs, and what the comparison says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from rewind.core.offsets import OffsetRange
from rewind.steps.compare.comparison import compared_rows
from rewind.steps.compare.findings import Found
from rewind.transforms.comparing.compare import Sides

SCHEMA = StructType().add("id", "long").add("page", "string").add("at", "timestamp")
SIDES = Sides(SCHEMA, SCHEMA, ())
HORIZON = {0: OffsetRange(0, 100)}
LOCATED = (
    "p int, o long, n int, repair int, kind string, key binary, value binary, reason string, "
    "out_partition int, out_offset long"
)


def row(
    o: int,
    value: str | None,
    *,
    p: int = 0,
    n: int = 0,
    key: bytes | None = b"k",
    kind: str = "row",
    repair: int = 0,
    at: int = 0,
) -> tuple:
    reason = "bad" if kind == "dead" else None
    return (p, o, n, repair, kind, key, None if value is None else value.encode(), reason, 0, at)


def page(o: int, name: str = "home", **more: object) -> tuple:
    return row(o, f'{{"id":{o},"page":"{name}"}}', **more)


def located(spark: SparkSession, rows: list[tuple]) -> DataFrame:
    return spark.createDataFrame(rows, LOCATED)


def compared(
    spark: SparkSession,
    live: list[tuple],
    candidate: list[tuple],
    sides: Sides = SIDES,
    horizon: dict | None = None,
) -> Found:
    both = [located(spark, rows) for rows in (live, candidate)]
    return compared_rows(both[0], both[1], sides, HORIZON if horizon is None else horizon)


def classes(
    spark: SparkSession,
    live: list[tuple],
    candidate: list[tuple],
    sides: Sides = SIDES,
    horizon: dict | None = None,
) -> dict:
    """Return the counts that are not 0, without the sum, and the fields that differ where some do."""
    found = compared(spark, live, candidate, sides, horizon)
    counts = {name: count for name, count in found.counts.items() if count and name not in ("rows", "dead_letters")}
    return {**counts, **({"fields": found.fields} if found.fields else {})}


Case = tuple[list[tuple], list[tuple], Mapping[str, Any]]
"""Rows of live and of a candidate, all at offsets of `HORIZON`, and what `classes` gives for them alone."""


def check_cases(spark: SparkSession, cases: Mapping[str, Case], sides: Sides = SIDES) -> None:
    """Hold the cases against the comparison, in one: each stands in as many source partitions of its own as tell it.

    Case `n` is there `n` times, so that what one has too many is not made up for by another that has too few.
    """
    rows, horizon, wanted = ([], []), {}, Counter()
    for number, case in enumerate(cases.values(), 1):
        for _ in range(number):
            partition = len(horizon)
            horizon[partition] = HORIZON[0]
            for side, there in enumerate(case[:2]):
                rows[side].extend((partition, *row[1:]) for row in there)
            wanted.update(_flat(case[2]))
    found = Counter(_flat(classes(spark, *rows, sides, horizon)))
    if found != wanted:
        each = {name: (case[2], classes(spark, *case[:2], sides)) for name, case in cases.items()}
        wrong = {name: both for name, both in each.items() if both[0] != both[1]}
        raise AssertionError(f"wanted and found: {wrong or (wanted, found)}")


def _flat(counted: Mapping[str, Any], path: Sequence[str] = ()) -> dict[tuple[str, ...], int]:
    flat: dict[tuple[str, ...], int] = {}
    for name, of in counted.items():
        flat |= _flat(of, (*path, name)) if isinstance(of, Mapping) else {(*path, name): of}
    return flat
