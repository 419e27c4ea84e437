"""What becomes of a visit: the same in stream, backfill and replay."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(visits: DataFrame) -> DataFrame:
    """Return the visits under the names of the output.

    Args:
        visits: Columns event_id, visit_id, event_time, page, and the engine's `_src`.

    Returns:
        Columns event_identifier, visit_identifier, event_time, visited_page and `_src`.
    """
    return visits.select(
        F.col("event_id").alias("event_identifier"),
        F.col("visit_id").alias("visit_identifier"),
        F.col("event_time"),
        F.col("page").alias("visited_page"),
        F.col("_src"),
    )
