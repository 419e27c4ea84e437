"""A pipeline with state under load: history, rewind, hand-over; killed or not, each window is what it must be."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from unittest import mock

from pyspark.sql import SparkSession

from rewind.adapters import mirror
from rewind.control import chunk_log, progress
from rewind.core import crash
from rewind.core.world import Batch
from tests import oracle
from tests.workshop import Workshop, wait_for

REWIND = "rw-handover"
BEGIN = datetime(2025, 9, 4, tzinfo=UTC)
DAY = timedelta(hours=24)
LATE_SHARE, REPEATED_SHARE = 0.05, 0.01
LATEST = timedelta(minutes=30)


@dataclass
class Handover:
    """One deployed counter of windows, what was produced for it, and its jobs.

    Attributes:
        shop: The pipeline.
        rng: Draws what is late and what is repeated.
        events: Event times by partition, in the order of the offsets, in milliseconds since 1970.
    """

    shop: Workshop
    rng: random.Random
    events: dict[int, list[int]] = field(default_factory=dict)
    made: int = 0

    def produce(self, count: int, of: int) -> None:
        """Produce the next `count` of `of` visits that a day of event time has; a few are late, a few come twice."""
        times: dict[int, list[datetime]] = {p: [] for p in self.shop.end()}
        for number in range(self.made, self.made + count):
            at = BEGIN + DAY * number / of
            if self.rng.random() < LATE_SHARE:
                at -= LATEST * self.rng.random()
            partition = number % len(times)
            times[partition] += [at] * (2 if self.rng.random() < REPEATED_SHARE else 1)
        self.made += count
        for partition, mine in times.items():
            bodies = (json.dumps({"event_id": "v", "visit_id": 1, "event_time": at.isoformat()}) for at in mine)
            self.shop.produce(*((None, body.encode()) for body in bodies), partition=partition)
            self.events.setdefault(partition, []).extend(int(at.timestamp() * 1000) for at in mine)

    def mirrored(self) -> None:
        """Let the mirror read to the end."""
        self.shop.start(self.shop.mirror)
        self.shop.caught_up(self.shop.mirror)

    def compact(self, spark: SparkSession) -> None:
        """Rewrite what is mirrored: from now on the times of its files tell nothing."""
        self.shop.stop(self.shop.mirror)
        path = mirror.table_path(self.shop.settings, self.shop.topic)
        mirror.compact(spark, path, datetime.now(UTC).date().isoformat(), 100_000)
        self.mirrored()

    @contextmanager
    def loaded(self, of: int) -> Iterator[None]:
        """Produce on, a thousand visits at a time, while the body runs."""
        over = threading.Event()

        def load() -> None:
            # A rate, not a synchronisation.
            while not over.wait(1):
                self.produce(1_000, of)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(load)
            try:
                yield
            finally:
                over.set()
                running.result()

    def step(self, name: str, crash_at: str = "") -> None:
        """Run a step of the rewind; killed at a point, it is run again."""
        if crash_at:
            ended = self.shop.submit(name, "--rewind-id", REWIND, environment={crash.VARIABLE: crash_at})
            assert ended.code != 0, f"{name} did not come to {crash_at}"
        self.shop.step(name, REWIND)

    def start(self, job_id: str, crash_at: str = "") -> None:
        """Start a stream; killed at a point, its supervisor starts it again."""
        if crash_at:
            with mock.patch.dict("os.environ", {crash.VARIABLE: crash_at}):
                self.shop.wish(job_id)
                self.shop.look(job_id)
                wait_for(f"{job_id} launched", lambda: self.shop.holder(job_id) is not None)
            wait_for(f"{job_id} killed", lambda: self.shop.holder(job_id) is None)
        self.shop.start(job_id)

    def batches(self, job_id: str) -> list[Batch]:
        """Return all batches that a job recorded, in order."""
        with self.shop.registry() as connection:
            return progress.recent(connection, job_id, 1_000_000)[::-1]

    def chunks(self) -> int:
        """Return how many chunks the backfill had, all done."""
        with self.shop.registry() as connection:
            done = chunk_log.read(connection, REWIND)
        assert {chunk.state for chunk in done} == {"done"}
        return len(done)

    def check(self, job_id: str, topic: str) -> int:
        """Hold each closed window of a job against the oracle, and its batches against the topic; return how many."""
        self.shop.caught_up(job_id)
        done = self.batches(job_id)
        assert oracle.contiguous(done, dict.fromkeys(self.shop.end(), 0)) == self.shop.end()
        closed = done[-1].closing_watermark
        wanted = oracle.counted(done, self.events)
        found = oracle.newest(self.shop.read(topic))
        assert found == wanted
        return sum(start + oracle.WINDOW <= closed for start in wanted)
