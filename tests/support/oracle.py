"""What windowed counts must be: the watermark rule applied to the batches that a job recorded, record by record."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from rewind.core.model import Batch
from tests.support.workshop import Record

WINDOW = 600_000
"""Milliseconds of a window."""


def counted(batches: Sequence[Batch], events: Mapping[int, Sequence[int]]) -> Counter[int]:
    """Return how many events each window counts, by its first instant.

    Args:
        batches: All batches of a job, in order.
        events: Event times by source partition, in the order of the offsets; milliseconds since 1970.
    """
    found: Counter[int] = Counter()
    for batch in batches:
        for partition, end in batch.end.items():
            for at in events[partition][batch.start.get(partition, 0) : end]:
                if at // WINDOW * WINDOW + WINDOW > batch.late_watermark:
                    found[at // WINDOW * WINDOW] += 1
    return found


def newest(records: Sequence[Record]) -> dict[int, int]:
    """Return the newest count of each window that an output holds, by its first instant."""
    versions: dict[int, tuple[str, int]] = {}
    for record in records:
        assert record.value is not None
        body = json.loads(record.value)
        start = int(datetime.fromisoformat(body["window_start"]).timestamp() * 1000)
        versions[start] = max(versions.get(start, ("", 0)), (record.headers["rewind-version"], body["count"]))
    return {start: count for start, (_, count) in versions.items()}


def contiguous(batches: Sequence[Batch], start: Mapping[int, int]) -> dict[int, int]:
    """Check that each batch begins where the one before ended, and return where the last one ended."""
    at = dict(start)
    for batch in batches:
        assert {p: batch.start.get(p, 0) for p in batch.end} == {p: at.get(p, 0) for p in batch.end}, batch
        at |= batch.end
    return at
