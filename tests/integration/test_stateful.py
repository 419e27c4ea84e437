"""A pipeline with state is rewound: its state is rebuilt from the mirror, and Kafka takes it over."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from rewind.control import chunk_log, progress
from rewind.core.world import Batch
from tests import oracle
from tests.workshop import Workshop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

BEGIN = datetime(2025, 9, 4, 5, tzinfo=UTC)


def visits(seed: int, count: int, first: int) -> list[datetime]:
    """Return event times that grow by ten seconds, some of them late by up to half an hour."""
    drawn = random.Random(seed)
    times = [BEGIN + timedelta(seconds=10 * (first + n)) for n in range(count)]
    return [t - timedelta(minutes=drawn.uniform(0, 30)) if drawn.random() < 0.05 else t for t in times]


def produce(shop: Workshop, events: dict[int, list[int]], times: Sequence[datetime]) -> None:
    for partition in events:
        mine = times[partition :: len(events)]
        bodies = [{"event_id": f"v{n}", "visit_id": n, "event_time": at.isoformat()} for n, at in enumerate(mine)]
        shop.produce(*((None, json.dumps(body).encode()) for body in bodies), partition=partition)
        events[partition] += [int(at.timestamp() * 1000) for at in mine]


def batches(shop: Workshop, job_id: str) -> list[Batch]:
    with shop.registry() as connection:
        return progress.recent(connection, job_id, 10_000)[::-1]


def test_its_state_is_rebuilt_and_taken_over(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("counter", 2, like="visits_window_counter", backfill={"chunk_records": 300})
    live, events = shop.deploy(), {0: [], 1: []}
    shop.start(live)
    shop.start(shop.mirror)
    for part in range(3):
        produce(shop, events, visits(part, 600, 600 * part))
        shop.caught_up(live)
    shop.caught_up(shop.mirror)
    shop.planned("rw-state", **{"from": "earliest", "same_code": True})
    for step in ("spin_up", "backfill"):
        shop.step(step, "rw-state")
    with shop.registry() as connection:
        chunks = chunk_log.read(connection, "rw-state")
    assert [chunk.state for chunk in chunks] == ["done"] * len(chunks)
    assert len(chunks) >= 6
    handoff = shop.position("counter-g2")
    shop.start("counter-g2")
    produce(shop, events, visits(9, 600, 1_800))
    for job in (live, "counter-g2"):
        shop.caught_up(job)

    for job in (live, "counter-g2"):
        done = batches(shop, job)
        assert oracle.contiguous(done, {0: 0, 1: 0}) == shop.end()
        found, wanted = oracle.newest(shop.read(f"counter-out-g{job[-1]}")), oracle.counted(done, events)
        assert found == wanted
    assert handoff == {0: 900, 1: 900}

    shop.step("validate", "rw-state")
    verdict = shop.verdict("rw-state")
    print(verdict.counts, verdict.sample[:3])
    assert (verdict.verdict, verdict.reason) == ("pass", "")
    shop.approve("rw-state")
    shop.step("cut_over", "rw-state")


def clicks(*times: str) -> list[tuple[None, bytes]]:
    bodies = ({"event_id": f"click-{t}", "visit_id": 1, "event_time": f"2025-09-04T{t}:00"} for t in times)
    return [(None, json.dumps(body).encode()) for body in bodies]


THE_BOOKS = [("07:00", "07:01", "07:02"), ("07:33", "07:34", "07:35"), ("08:06", "08:07", "08:08"), ("07:03", "07:04")]


def test_what_live_left_out_as_late_is_a_class_of_its_own(workshop: Callable[..., Workshop]) -> None:
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


def counted(shop: Workshop, topic: str) -> dict[str, int]:
    """Return the newest count of each window, by its beginning."""
    bodies = [json.loads(record.value or b"") for record in shop.read(topic)]
    return {body["window_start"][11:16]: body["count"] for body in bodies}
