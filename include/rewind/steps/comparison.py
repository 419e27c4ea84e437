"""Compare the outputs of two generations over a horizon, and judge what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import outputs as adapter
from rewind.core import lifecycle
from rewind.core.offsets import Ranges, ends
from rewind.core.pipeline import thaw
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.transforms import compare, outputs, parsing

SAMPLE = 20
"""Differences that are kept with both sides."""


@dataclass(frozen=True)
class Found:
    """What a comparison counted.

    Attributes:
        counts: Rows by class, with `rows` (compared in all), `repeated`, `repeated_differently`,
            `dead_letters` (of the candidate) and `open` (beyond the ceiling).
        fields: Rows by class and differing field.
        sample: The first differences by source coordinate, both sides, bytes that are no text in hex.
    """

    counts: Mapping[str, int]
    fields: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sample: tuple[Mapping[str, Any], ...] = ()


def compared(
    spark: SparkSession, settings: Settings, live: Generation, candidate: Generation, horizon: Ranges
) -> Found:
    """Compare what two generations wrote for the source offsets of a horizon."""
    whole = [adapter.read(spark, settings, generation) for generation in (live, candidate)]
    sides = [outputs.deduplicated(compare.within(rows, horizon)) for rows in whole]
    rows = compare.classified(sides[0], sides[1], _sides(live, candidate))
    counts, fields = _counts(rows)
    counts |= _totals(sides[0], sides[1])
    counts["open"] = sum(compare.beyond(rows, ends(horizon)).count() for rows in whole)
    differing = sum(counts.get(name, 0) for name in (compare.EXPECTED, *compare.DIFFERENCES))
    return Found(counts, fields, _sample(rows) if differing else ())


def judge(found: Found, expected_records: int) -> tuple[str, str]:
    """Return the verdict (pass, fail or error) and why it is not a pass.

    Nothing compared is no pass, unless no record was expected.
    """
    bad = {name: found.counts.get(name, 0) for name in (*compare.DIFFERENCES, "repeated_differently")}
    wrong = {name: count for name, count in bad.items() if count}
    if wrong:
        return lifecycle.FAIL, "; ".join(f"{count} {name}" for name, count in wrong.items())
    if not found.counts["rows"] and expected_records:
        return lifecycle.ERROR, f"nothing was compared, though the plan expected {expected_records} records"
    return lifecycle.PASS, ""


def _sides(live: Generation, candidate: Generation) -> compare.Sides:
    schemas = [parsing.declared(generation.frozen["output_schema"]) for generation in (live, candidate)]
    return compare.Sides(schemas[0], schemas[1], thaw(candidate.frozen["config"]).expected)


def _counts(rows: DataFrame) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    by_class = dict.fromkeys((compare.EQUAL, compare.EXPECTED, *compare.DIFFERENCES), 0)
    fields: dict[str, dict[str, int]] = {}
    # At most a row for each class and field.
    for row in compare.counts(rows).collect():
        if row["field"] is None:
            by_class[row["class"]] = row["count"]
        else:
            fields.setdefault(row["class"], {})[row["field"]] = row["count"]
    return {"rows": sum(by_class.values()), **by_class}, fields


def _totals(live: DataFrame, candidate: DataFrame) -> dict[str, int]:
    repeated = _sum(F.col("copies") - 1)
    varied = _sum(F.col("varied").cast("long"))
    dead = _sum((F.col("kind") == outputs.DEAD).cast("long"))
    one = [side.agg(repeated.alias("r"), varied.alias("v"), dead.alias("d")).first() for side in (live, candidate)]
    assert one[0] is not None and one[1] is not None
    return {
        "repeated": one[0]["r"] + one[1]["r"],
        "repeated_differently": one[0]["v"] + one[1]["v"],
        "dead_letters": one[1]["d"],
    }


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


def _sample(rows: DataFrame) -> tuple[Mapping[str, Any], ...]:
    ordered = rows.where(F.col("class") != compare.EQUAL).orderBy(F.col("class") == compare.EXPECTED, "p", "o", "n")
    return tuple(_shown(row) for row in ordered.limit(SAMPLE).collect())


def _shown(row: Row) -> dict[str, Any]:
    place = {"partition": row["p"], "offset": row["o"], "row": row["n"]}
    return {**place, "class": row["class"], "fields": row["fields"], "live": _side(row["l"]), "candidate": _side(row["c"])}


def _side(side: Row | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {name: _text(side[name]) for name in outputs.CONTENT}


def _text(value: object) -> object:
    if not isinstance(value, (bytes, bytearray)):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return f"0x{bytes(value).hex()}"
