"""Which source records went into an aggregated row: the first and last offset of each partition."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

PARTITIONS = "spark.rewind.partitions"
"""Spark setting: partitions of the source topic when the generation was made. State keeps two offsets for each."""


def span(source: str = "_src") -> Column:
    """Return the aggregate that carries `_src` through a grouping.

    It keeps two offsets a partition in the state of each key, for the partitions that the source had when the
    generation was made: a state's columns cannot change later. Records of partitions added since are counted, and
    not named.

    Returns:
        `_src`: an array of `partition` int, `first` and `last` long (both inclusive), without the partitions that
        gave the row nothing.
    """
    active = SparkSession.getActiveSession()
    count = int(active.conf.get(PARTITIONS, "1") or 1) if active is not None else 1
    parts = [_bounds(F.col(source), partition) for partition in range(count)]
    return F.filter(F.array(*parts), lambda part: part["first"].isNotNull()).alias("_src")


def _bounds(source: Column, partition: int) -> Column:
    offset = F.when(source["partition"] == partition, source["offset"])
    return F.struct(F.lit(partition).alias("partition"), F.min(offset).alias("first"), F.max(offset).alias("last"))
