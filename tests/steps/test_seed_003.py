"""The documents' stateful example, exactly, through the product's jobs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import datetime

import pytest

from rewind.core import coordinates
from rewind.core.model import Batch
from rewind.registry import progress
from tests.support.workshop import Workshop, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

BATCHES = [
    (1, [("click-1", 1, "00"), ("click-2", 1, "01"), ("click-3", 1, "02")]),
    (0, [("click-4", 1, "00"), ("click-1", 2, "10"), ("click-1", 2, "20")]),
    (0, [("click-1", 2, "25"), ("click-1", 2, "35")]),
]
PRINTED: list[dict[str, int]] = [{}, {"00": 3}, {}, {"00": 4, "10": 1, "20": 1}, {}, {"20": 2, "30": 1}, {}]


def click(event: str, visit: int, minute: str) -> tuple[None, bytes]:
    body = {"event_id": event, "visit_id": visit, "event_time": f"2025-09-04T07:{minute}:00.000000"}
    return None, json.dumps(body).encode()


def batches(shop: Workshop, job_id: str) -> list[Batch]:
    with shop.registry() as connection:
        return progress.recent(connection, job_id, 100)[::-1]


@pytest.mark.shows("stateful", seed_003="batches 0 to 6 as printed")
def test_seed_003(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("seed_counter", 2, like="visits_window_counter")
    live = shop.deploy()
    shop.start(live)
    wait_for("batch 0", lambda: len(batches(shop, live)) == 1)
    for number, (partition, clicks) in enumerate(BATCHES):
        shop.produce(*(click(*one) for one in clicks), partition=partition)
        # The batch of the clicks, and the one without records that the grown watermark brings.
        wait_for(f"batch {number * 2 + 2}", lambda n=number: len(batches(shop, live)) == n * 2 + 3)
    shop.stop(live)

    printed: list[dict[str, int]] = [{} for _ in PRINTED]
    for record in shop.read("seed_counter-out-g1"):
        assert record.value is not None
        assert record.key is not None
        body = json.loads(record.value)
        batch = int(record.headers["rewind-version"].partition("-")[2])
        assert record.headers["rewind-version"] == coordinates.version(1, batch)
        assert json.loads(record.key) == {"window_start": body["window_start"]}
        printed[batch][body["window_start"][14:16]] = body["count"]
    assert printed == PRINTED
    assert [b.rows for b in batches(shop, live)] == [0, 3, 0, 3, 0, 2, 0]
    minutes = [(b.late_watermark, b.closing_watermark) for b in batches(shop, live)]
    grown = [0, at("06:42"), at("07:00"), at("07:15")]
    assert minutes == [(0, 0), *((a, b) for old, new in itertools.pairwise(grown) for a, b in ((old, old), (old, new)))]


def at(time: str) -> int:
    """Return the milliseconds of a time of the example's day in its zone, two hours ahead of UTC."""
    return int(datetime.fromisoformat(f"2025-09-04T{time}:00+02:00").timestamp() * 1000)
