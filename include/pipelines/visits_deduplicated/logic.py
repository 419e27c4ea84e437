"""Visits without their repeats: the same in stream, backfill and replay."""

from __future__ import annotations

from pyspark.sql import DataFrame


def transform(visits: DataFrame) -> DataFrame:
    """Return the first of each event that comes within the watermark's delay.

    Args:
        visits: Columns event_id, visit_id, event_time, page, and the engine's `_src`.

    Returns:
        Columns event_id, visit_id, event_time, page and `_src`.
    """
    return visits.withWatermark("event_time", "20 minutes").dropDuplicatesWithinWatermark(["event_id"])
