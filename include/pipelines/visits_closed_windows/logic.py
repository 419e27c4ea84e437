"""How many visits each ten minutes had, told once: the same in stream, backfill and replay."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import rewind


def transform(visits: DataFrame) -> DataFrame:
    """Return the count of each window of event time.

    Args:
        visits: Columns event_id, visit_id, event_time, and the engine's `_src`.

    Returns:
        Columns window_start, window_end, count and `_src`.
    """
    windows = visits.withWatermark("event_time", "10 minutes").groupBy(F.window("event_time", "10 minutes"))
    counted = windows.agg(F.count(F.lit(1)).alias("count"), rewind.span("_src"))
    return counted.select(
        F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "count", "_src"
    )
