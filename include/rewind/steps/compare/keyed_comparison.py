"""Compare the keyed results of two jobs: the newest version of each key, over the windows closed for both."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from rewind.adapters import outputs as adapter
from rewind.core.horizon import Frontier
from rewind.core.model import Generation, Topic
from rewind.core.offsets import Vector
from rewind.core.settings import Settings
from rewind.steps.compare import lateness
from rewind.transforms.comparing import compare, keyed
from rewind.transforms.comparing.keyed import Bounds

DIFFERENT = (compare.MISSING, compare.EXTRA, compare.CHANGED)


class Keyed:
    """One comparison of two jobs' results.

    Attributes:
        counts: Keys by class, with `rows`, `repeated`, `repeated_differently`, `open` and `warm_up`.
        fields: Keys by class and differing field.
        differing: The pairs that are not equal, with their `class` and `fields`; cached until `close`.
        unread: Where both outputs have to be read on for the results that were open.
        ends: Up to where both were read.
        touched: Rows that came since the comparison before, of results that it judged.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        live: Generation,
        candidate: Generation,
        sides: compare.Sides,
        bounds: Bounds,
        before: Frontier | None,
    ) -> None:
        """Read, pair and classify."""
        unread = None if before is None else before.unread
        read = [adapter.read_keyed(spark, settings, generation, unread) for generation in (live, candidate)]
        self.ends = adapter.ends_of(topic for topic, _ in read)
        self.touched = 0 if before is None or not before.ends else sum(_touched(*one, before) for one in read)
        newest = [keyed.newest(rows) for _, rows in read]
        self._pairs = keyed.paired(newest[0], newest[1], bounds).persist(StorageLevel.DISK_ONLY)
        self.counts = _totals(self._pairs)
        self.unread = {
            topic.id: _unread(self._pairs, side, topic) for side, (topic, _) in zip(("l", "c"), read, strict=True)
        }
        judged = self._pairs.where(F.col("state") == keyed.JUDGED)
        same = F.col("in_live") & F.col("in_candidate") & F.col("l.value").eqNullSafe(F.col("c.value"))
        suspects = judged.where(~same)
        self.counts[compare.EQUAL] = self.counts["rows"] - suspects.count()
        classed = compare.with_class(suspects, sides).persist(StorageLevel.DISK_ONLY)
        doubtful = classed.where(F.col("class").isin(*DIFFERENT))
        if not doubtful.isEmpty():
            late = lateness.explained(spark, settings, live, candidate, doubtful, sides)
            known = late.withColumn("late", F.lit(True))
            joined = classed.join(known, "key", "left")
            by_lateness = F.col("late") & F.col("class").isin(*DIFFERENT)
            classed = joined.withColumn("class", F.when(by_lateness, compare.LATE).otherwise(F.col("class")))
            classed = classed.drop("late").persist(StorageLevel.DISK_ONLY)
        self.differing = classed
        self.fields: dict[str, dict[str, int]] = {}
        # One row a class.
        for row in compare.counts(classed, sides).collect():
            self.counts[row["class"]] += row["rows"]
            if row["fields"]:
                self.fields[row["class"]] = dict(row["fields"])

    def close(self) -> None:
        """Give back what was cached."""
        self.differing.unpersist()
        self._pairs.unpersist()

    def sample(self, count: int) -> list[Any]:
        """Return some of the differing pairs, late ones last."""
        order = (F.col("class") == compare.EXPECTED, F.col("class") == compare.LATE, F.col("key"))
        return self.differing.where(F.col("class") != compare.EQUAL).orderBy(*order).limit(count).collect()


def _touched(topic: Topic, rows: DataFrame, before: Frontier) -> int:
    # Before the first closed result nothing was judged.
    return rows.where(adapter.newer(topic, before.ends) & (F.col("ends") <= before.closed)).count()


def _totals(pairs: DataFrame) -> dict[str, int]:
    sums = [F.sum(F.col(name).cast("long")).alias(name) for name in ("repeated", "varied")]
    # One row a state.
    found = {row["state"]: row for row in pairs.groupBy("state").agg(F.count(F.lit(1)).alias("rows"), *sums).collect()}
    counts = dict.fromkeys((compare.EQUAL, compare.EXPECTED, compare.LATE, *compare.DIFFERENCES), 0)
    for name in (compare.OPEN, keyed.WARM_UP):
        counts[name] = found[name]["rows"] if name in found else 0
    judged = found.get(keyed.JUDGED)
    counts["rows"] = judged["rows"] if judged else 0
    counts["repeated"] = judged["repeated"] if judged else 0
    counts["repeated_differently"] = judged["varied"] if judged else 0
    return counts


def _unread(pairs: DataFrame, side: str, topic: Topic) -> Vector:
    unread = dict(topic.latest)
    # One row a span, and a span is one partition unless partitions were added.
    for row in compare.beyond(pairs, side).collect():
        for partition in range(row["place"], row["last_place"] + 1):
            unread[partition] = min(row["first"], unread.get(partition, row["first"]))
    return unread
