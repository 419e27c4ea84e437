"""Visits whose event times grow, some of them late: what pipelines with state are fed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tests.support.workshop import Workshop

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
