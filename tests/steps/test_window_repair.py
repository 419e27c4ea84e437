"""Repairs by event time: results of a range of it are made again from all their records."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from rewind.runtime import tables
from tests.scenarios.late_rows import clicks, repaired
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(900)]

USERS = {
    1: "08:59 09:06 09:15 09:21 09:30 09:35 09:40 09:49 09:50 09:51 09:52 "
    "10:00 10:10 10:20 10:30 10:40 10:50 11:00 11:25",
    2: "09:49 10:00 10:05 10:45 10:50",
    3: "10:52 11:02 11:12 11:22 11:32 11:42 11:52",
}


@pytest.mark.shows("stateful", repaired_sessions="18, 2, 2 and 7 pages")
def test_the_sessions_that_an_hour_touches(workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    shop = workshop("sessions", 1, like="visits_sessions")
    live = shop.deploy()
    shop.start(live)
    shop.start(shop.mirror)
    visits = sorted((time, user) for user, times in USERS.items() for time in times.split())
    bodies = ({"user_id": user, "event_time": f"2025-09-04T{time}:00"} for time, user in [*visits, ("12:30", 4)])
    shop.produce(*((None, json.dumps(body).encode()) for body in bodies))
    for owner in (live, shop.mirror):
        shop.caught_up(owner)
    # A batch without records closes what the last one let the watermark pass.
    shop.produce(*clicks("12:31"))
    shop.caught_up(live)
    assert repaired(shop, "2025-09-04T08:00:00Z", "2025-09-04T09:00:00Z") == {"rows": 4, "equal": 4}
    path = str(tables.path(shop.settings, "sessions-out-r1"))
    rows = spark.read.format("delta").load(path).orderBy("user_id", "session_start").collect()
    assert [(row["user_id"], row["pages"]) for row in rows] == [(1, 18), (2, 2), (2, 2), (3, 7)]
