"""The book's late rows: what live left out as late is reported, and a repair of their window adds them."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.workshop import Workshop

THE_BOOKS = [("07:00", "07:01", "07:02"), ("07:33", "07:34", "07:35"), ("08:06", "08:07", "08:08"), ("07:03", "07:04")]


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


def reported_and_repaired(workshop: Callable[..., Workshop]) -> None:
    """Live through the book's late rows, and repair the window that they belong to."""
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
    shop.abort("rw-late")

    assert repaired(shop, "2025-09-04T05:00:00Z", "2025-09-04T05:10:00Z") == {"rows": 1, "late": 1}
    assert counted(shop, "closed-out-r1") == {"07:00": 5}
    assert counted(shop, "closed-out-g1") == {"07:00": 5, "07:30": 3}
    *before, newest = shop.read("closed-out-g1")
    assert newest.headers["rewind-repair"] == "1"
    assert newest.headers["rewind-version"] > max(r.headers["rewind-version"] for r in before)
