"""Results of windows that are equal but for what is planted, compared as those of two jobs with state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rewind.core.model import Topic
from rewind.core.pipeline import ExpectedChange
from rewind.steps.compare import keyed_comparison
from rewind.transforms.comparing.compare import Sides
from rewind.transforms.comparing.keyed import Bounds
from tests.support import fakes, planting
from tests.support.planting import SAME, Kind, Row, changed, told, wanted

SCHEMA = StructType().add("start", "timestamp").add("end", "timestamp").add("count", "long")
SIDES = Sides(SCHEMA, SCHEMA, (ExpectedChange("count", "candidate.count = live.count + 1"),))
FIRST, WINDOW = 1_756_944_000, 600
"""Second since 1970 at which the first window starts, and how long each is."""
CONTENT = {
    "start": f"timestamp_seconds({FIRST} + {{s}} * {WINDOW})",
    "end": f"timestamp_seconds({FIRST} + {{s}} * {WINDOW} + {WINDOW})",
    "count": "{s} % 1000 + 1",
    "version": "'2'",
    "out_offset": "{s} * 4",
    "gone": "false",
}
"""A result; its version is a text that grows, `gone` makes it a tombstone."""
AGAIN: Row = {"out_offset": "s * 4 + 1"}
KINDS: dict[str, Kind] = {
    "missing": Kind(candidate=(), counts={"missing": 1}),
    "extra": Kind(live=(), counts={"extra": 1}),
    "changed": changed("count", count="s % 1000 + 3"),
    "null": changed("count", count="cast(null AS BIGINT)"),
    "another end": changed("end", end=f"timestamp_seconds({FIRST} + s * {WINDOW} + {WINDOW} - 1)"),
    "two fields": changed("count", "end", count="0", end=f"timestamp_seconds({FIRST} + s * {WINDOW} + {WINDOW} - 1)"),
    "an older version differs": Kind(candidate=({"version": "'1'", "count": "0"}, AGAIN)),
    "another way to it": Kind(live=({"version": "'1'", "count": "7"}, AGAIN), candidate=(SAME,)),
    "repeated": Kind(candidate=(SAME, AGAIN), counts={"equal": 1, "repeated": 1}),
    "repeated differently": Kind(
        candidate=({"count": "0"}, AGAIN), counts={"equal": 1, "repeated": 1, "repeated_differently": 1}
    ),
    "as expected": Kind(candidate=({"count": "s % 1000 + 2"},), counts={"expected": 1}, fields=("count",)),
    "late": Kind(candidate=({"count": "s % 1000 + 5"},), counts={"late": 1}, fields=("count",)),
    "late, and missing": Kind(candidate=(), counts={"late": 1}),
}
LATE = [list(KINDS).index(name) for name in KINDS if name.startswith("late")]


def check_each(spark: SparkSession, count: int, each: int) -> dict[str, object]:
    """Compare so many windows with so many of each kind planted, as many open, and as many of the warm-up.

    What lateness explains is played; `tests/spark/test_stateful_cases.py` holds that against the mirror.
    """
    kind = planting.spread(list(KINDS), each, count - each, first=each + each % 2)
    found = _compared(spark, count, each, kind if each else F.lit(None).cast("int"))
    planted = dict.fromkeys(KINDS, each)
    assert found == wanted(count - 2 * each, KINDS, planted, open=each, warm_up=each)
    return found


def check_equal(spark: SparkSession, count: int) -> dict[str, object]:
    """Compare so many unchanged windows."""
    found = _compared(spark, count, 0, F.lit(None).cast("int"))
    assert found == wanted(count, KINDS, {})
    return found


def _compared(spark: SparkSession, count: int, beyond: int, kind: Any) -> dict[str, object]:
    numbered = spark.range(count, numPartitions=2).select(F.col("id").alias("s")).withColumn("planted", kind)
    sides = [_side(numbered, [getattr(made, side) for made in KINDS.values()]) for side in ("live", "candidate")]
    first = FIRST + beyond * WINDOW
    bounds = Bounds(first * 1000, -(2**62), (FIRST + (count - beyond) * WINDOW) * 1000)
    topics = [Topic(name, name, {0: 0}, {0: count * 4}) for name in ("live", "candidate")]
    read = mock.Mock(side_effect=list(zip(topics, sides, strict=True)))
    late = numbered.where(F.col("planted").isin(LATE)).select(_key().alias("key"))
    jobs = (fakes.generation(), fakes.generation(number=2))
    with (
        mock.patch.object(keyed_comparison.adapter, "read_keyed", read),
        mock.patch.object(keyed_comparison.lateness, "explained", return_value=late),
    ):
        made = keyed_comparison.Keyed(spark, mock.Mock(), *jobs, SIDES, bounds, None)
    try:
        return told(made)
    finally:
        made.close()


def _side(numbered: DataFrame, rows: Sequence[Sequence[Row]]) -> DataFrame:
    made = numbered.select("s", F.inline(planting.rows(rows, CONTENT)))
    value = F.when(~F.col("gone"), F.to_json(F.struct(*SCHEMA.names)).cast("binary"))
    instants = [F.unix_millis(name).alias(side) for name, side in (("start", "starts"), ("end", "ends"))]
    return made.select(
        _key().alias("key"), value.alias("value"), "version", *instants, F.lit(0).alias("out_partition"), "out_offset"
    )


def _key() -> Any:
    return F.to_json(F.struct("s")).cast("binary")
