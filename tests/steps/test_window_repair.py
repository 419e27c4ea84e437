"""The book's late rows and repairs: results of a range of event time are made anew from all their records."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from rewind.control import tables
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

THE_BOOKS = [("07:00", "07:01", "07:02"), ("07:33", "07:34", "07:35"), ("08:06", "08:07", "08:08"), ("07:03", "07:04")]
USERS = {
    1: "08:59 09:06 09:15 09:21 09:30 09:35 09:40 09:49 09:50 09:51 09:52 "
    "10:00 10:10 10:20 10:30 10:40 10:50 11:00 11:25",
    2: "09:49 10:00 10:05 10:45 10:50",
    3: "10:52 11:02 11:12 11:22 11:32 11:42 11:52",
}


def clicks(*times: str) -> list[tuple[None, bytes]]:
    bodies = ({"event_id": f"click-{t}", "visit_id": 1, "event_time": f"2025-09-04T{t}:00"} for t in times)
    return [(None, json.dumps(body).encode()) for body in bodies]


def counted(shop: Workshop, topic: str) -> dict[str, int]:
    """Return the newest count of each window, by its beginning."""
    bodies = [json.loads(record.value or b"") for record in shop.read(topic)]
    return {body["window_start"][11:16]: body["count"] for body in bodies}


def repaired(shop: Workshop, start: str, end: str) -> dict[str, int]:
    """Repair a range of event time, and return the classes of its verdict."""
    shop.planned("rw-repair", **{"from": start, "to": end, "same_code": True})
    for step in ("spin_up", "backfill", "validate"):
        shop.step(step, "rw-repair")
    verdict = shop.verdict("rw-repair")
    assert verdict.verdict == "pass"
    shop.approve("rw-repair")
    shop.step("merge", "rw-repair")
    return {name: count for name, count in verdict.counts.items() if count}


def what_live_left_out_as_late_is_told_and_mended(workshop: Callable[..., Workshop]) -> None:
    """Live through the book's late rows: an acceptance test, for its length."""
    shop = workshop("closed", 1, like="visits_closed_windows")
    live = shop.deploy()
    shop.start(live)
    shop.start(shop.mirror)
    for times in THE_BOOKS:
        shop.produce(*clicks(*times))
        shop.caught_up(live)
    shop.caught_up(shop.mirror)
    assert counted(shop, "closed-out-g1") == {"07:00": 3, "07:30": 3}

    shop.planned("rw-late", **{"from": "earliest", "same_code": True})
    for step in ("spin_up", "backfill"):
        shop.step(step, "rw-late")
    assert counted(shop, "closed-out-g2") == {"07:00": 5, "07:30": 3}
    shop.start("closed-g2")
    shop.produce(*clicks("08:09"))
    for job in (live, "closed-g2"):
        shop.caught_up(job)
    shop.step("validate", "rw-late")
    verdict = shop.verdict("rw-late")
    found = {name: count for name, count in verdict.counts.items() if count}
    assert (verdict.verdict, found) == ("pass", {"equal": 1, "late": 1, "rows": 2})
    (sample,) = verdict.sample
    assert (sample["class"], sample["fields"]) == ("late", ["count"])
    shop.step("abort", "rw-late")

    assert repaired(shop, "2025-09-04T05:00:00Z", "2025-09-04T05:10:00Z") == {"rows": 1, "late": 1}
    assert counted(shop, "closed-out-r1") == {"07:00": 5}
    assert counted(shop, "closed-out-g1") == {"07:00": 5, "07:30": 3}
    *before, newest = shop.read("closed-out-g1")
    assert newest.headers["rewind-repair"] == "1"
    assert newest.headers["rewind-version"] > max(r.headers["rewind-version"] for r in before)


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
