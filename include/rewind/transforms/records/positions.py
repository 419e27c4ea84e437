"""Where a reader of one output goes on in another, by the source coordinates of both.

A source record is *settled* for a reader once it has read the row that counts (of the highest repair). Of the new
output it needs each row that is not settled and whose source offset is at or after its *low mark*: the first source
offset that it has not settled. Rows below the low mark that the old output never had are the reader's to choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rewind.core.offsets import Ranges
from rewind.transforms.records.outputs import COORDINATE, ROW

PLACE = ("out_partition", "out_offset")


def placed(located: DataFrame) -> DataFrame:
    """Return of located rows (`outputs.located`) only where they came from and where they stand, dead letters left out.

    Returns:
        `COORDINATE`, `repair` and `PLACE`.
    """
    return located.where(F.col("kind") == ROW).select(*COORDINATE, "repair", *PLACE)


def settled(rows: DataFrame, read: Mapping[int, int]) -> DataFrame:
    """Return one row a coordinate of the old output: `COORDINATE` and whether the reader has `settled` it.

    Args:
        rows: The old output (`placed`).
        read: The reader's position in it, per output partition.
    """
    below = ~at_or_after(PLACE, read)
    counts = F.max_by("below", F.struct("repair", "below")).alias("settled")
    return rows.withColumn("below", below).groupBy(*COORDINATE).agg(counts)


def met(rows: DataFrame, ranges: Ranges) -> DataFrame:
    """Return the coordinates of the rows that stand in ranges of output offsets, each once."""
    within = [
        (F.col("out_partition") == p) & (F.col("out_offset") >= r.start) & (F.col("out_offset") < r.end)
        for p, r in sorted(ranges.items())
    ]
    return rows.where(_any(within)).select(*COORDINATE).distinct()


def known(old: DataFrame, seen: DataFrame | None) -> DataFrame:
    """Return what a reader has settled in either output.

    Args:
        old: `settled` of the old output.
        seen: What it has `met` in the new one; None when it never read that.

    Returns:
        `COORDINATE`, `settled`, and `old`: whether the old output has the coordinate.
    """
    if seen is None:
        return old.withColumn("old", F.lit(True))
    joined = old.join(seen.withColumn("seen", F.lit(True)), on=list(COORDINATE), how="full_outer")
    either = F.coalesce("settled", F.lit(False)) | F.coalesce("seen", F.lit(False))
    return joined.select(*COORDINATE, either.alias("settled"), F.col("settled").isNotNull().alias("old"))


def marks(read: DataFrame) -> DataFrame:
    """Return per source partition `p`: `low`, the first offset not settled, and `reach`, after the last settled one."""
    unread = F.when(~F.col("settled"), F.col("o"))
    taken = F.when(F.col("settled"), F.col("o") + 1)
    return read.groupBy("p").agg(F.min(unread).alias("low"), F.max(taken).alias("reach"))


def pairs(read: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the full outer join of what is known of the old output and the rows of the new one.

    Args:
        read: What the reader has settled (`known`).
        rows: The new output (`placed`).

    Returns:
        `COORDINATE`; `PLACE`, null where the new output has no row; `settled`; and `old`, whether the old output
        has the coordinate.
    """
    joined = read.join(rows.select(*COORDINATE, *PLACE), on=list(COORDINATE), how="full_outer")
    flags = [F.coalesce(name, F.lit(False)).alias(name) for name in ("settled", "old")]
    return joined.select(*COORDINATE, *PLACE, *flags)


def first_needed(joined: DataFrame, low: Mapping[int, int]) -> DataFrame:
    """Return per `out_partition` of the new output the first offset (`first`) that the reader needs."""
    needed = F.col("out_offset").isNotNull() & ~F.col("settled") & at_or_after(("p", "o"), low)
    return joined.where(needed).groupBy("out_partition").agg(F.min("out_offset").alias("first"))


def totals(joined: DataFrame, positions: Mapping[int, int]) -> DataFrame:
    """Return one row: `repeats` at or after the positions, and `dropped`: unread, and not in the new output."""
    ahead = F.col("out_offset").isNotNull() & at_or_after(PLACE, positions)
    dropped = F.col("out_offset").isNull() & ~F.col("settled")
    return joined.agg(
        F.count_if(ahead & F.col("settled")).alias("repeats"),
        F.count_if(dropped).alias("dropped"),
    )


def left_out(joined: DataFrame, positions: Mapping[int, int], whole: Mapping[int, int]) -> DataFrame:
    """Return the coordinates that only the new output has, below the positions, each once.

    Args:
        joined: `pairs`.
        positions: The reader's positions in the new output.
        whole: First source offset from which the old output is still whole; what lies before says nothing.
    """
    gone = _any([(F.col("p") == p) & (F.col("o") < o) for p, o in sorted(whole.items())])
    only = joined.where(F.col("out_offset").isNotNull() & ~F.col("settled") & ~F.col("old") & ~gone)
    # A coordinate of which a copy still lies ahead is read there.
    by_place = only.groupBy(*COORDINATE).agg(F.bool_or(at_or_after(PLACE, positions)).alias("ahead"))
    return by_place.where(~F.col("ahead")).select(*COORDINATE)


def at_or_after(columns: tuple[str, str], vector: Mapping[int, int]) -> Column:
    """Return whether a partition and an offset column stand at or after a vector; a partition it lacks does."""
    before = [(F.col(columns[0]) == p) & (F.col(columns[1]) < o) for p, o in sorted(vector.items())]
    return ~_any(before)


def _any(conditions: list[Column]) -> Column:
    return reduce(Column.__or__, conditions, F.lit(False))
