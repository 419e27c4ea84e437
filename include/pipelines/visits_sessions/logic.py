"""Sessions of users: the same in stream, backfill and replay.

A pause of exactly 600 seconds belongs to the session, a longer one ends it. Times count in whole milliseconds, as the
watermark does: so a session is open until the watermark has passed its last visit by more than the pause.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import rewind

PAUSE = "600 seconds 1 microsecond"
"""Spark closes a session when the watermark reaches its end: with the bare pause, a millisecond early."""


def transform(visits: DataFrame) -> DataFrame:
    """Return the sessions of each user.

    Args:
        visits: Columns event_id, user_id, event_time, page, and the engine's `_src`.

    Returns:
        Columns user_id, session_start, session_end (its last visit), closed_at, pages and `_src`.
    """
    timed = visits.withColumn("at", F.date_trunc("MILLISECOND", "event_time")).withWatermark("at", "10 minutes")
    sessions = timed.groupBy("user_id", F.session_window("at", PAUSE)).agg(
        F.count(F.lit(1)).alias("pages"), F.max("at").alias("session_end"), rewind.span("_src")
    )
    return sessions.select(
        "user_id",
        F.col("session_window.start").alias("session_start"),
        "session_end",
        (F.col("session_end") + F.expr("INTERVAL '600.001' SECOND")).alias("closed_at"),
        "pages",
        "_src",
    )
