"""A pipeline with state under load: history, rewinds, hand-overs; killed or not, each window is what it must be."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from unittest import mock

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from rewind.adapters import mirror
from rewind.core import crash
from rewind.core.errors import RetryError
from rewind.core.offsets import reached
from rewind.local import broker as local_broker
from rewind.registry import chunk_log, generations, leases, progress
from rewind.runtime.drivers import supervise
from tests.scenarios.crashes import killed
from tests.support import oracle
from tests.support.ground import Ground
from tests.support.workshop import Workshop, wait_for

BEGIN = datetime(2025, 9, 4, tzinfo=UTC)
DAY = timedelta(hours=24)
LATE_SHARE, REPEATED_SHARE = 0.05, 0.01
LATEST = timedelta(minutes=30)
PAUSE_SECONDS = 1.0
PATIENCE = 900.0

LAUNCHED = "launched"


@dataclass(frozen=True)
class Trouble:
    """What is done to a rewind on its way.

    Attributes:
        backfill: Crash points at which the driver of the backfill is killed, each in an attempt of its own.
        stream: The same for that of the stream; `LAUNCHED` is before it has read anything.
        bounced: Whether the broker is bounced, in the history and again when Kafka takes over.
    """

    backfill: Sequence[str] = ()
    stream: Sequence[str] = ()
    bounced: bool = False


TROUBLES = {
    "untroubled": Trouble(),
    # In a chunk, between chunks, before and at the swap, and in the first live batch.
    "killed once in each phase": Trouble(
        ("after:batch.write", "after:progress.record", "before:handoff.fix"), (LAUNCHED, "after:batch.write")
    ),
    "broker bounced": Trouble(bounced=True),
}


@dataclass
class Handover:
    """One deployed counter of windows, what was produced for it, and its rewinds.

    Attributes:
        ground: The pipeline and its broker.
        of: How many visits a day of event time has.
        rng: Draws what is late and what is repeated.
        events: Event times by partition, in the order of the offsets, in milliseconds since 1970.
        made: How many visits were produced, repeats not counted.
        rewinds: How many rewinds there were.
        forgiven: How often a stream may still fail without waiting for its next start.
        looking: Held while a stream is looked at: a driver inherits this process's environment.
    """

    ground: Ground
    of: int
    rng: random.Random
    events: dict[int, list[int]] = field(default_factory=dict)
    made: int = 0
    rewinds: int = 0
    forgiven: int = 20
    looking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def shop(self) -> Workshop:
        """The pipeline."""
        return self.ground.shop

    def produce(self, count: int) -> None:
        """Produce the next visits; a few of them are late, a few come twice."""
        times: dict[int, list[datetime]] = {p: [] for p in range(3)}
        for number in range(self.made, self.made + count):
            at = BEGIN + DAY * number / self.of
            if self.rng.random() < LATE_SHARE:
                at -= LATEST * self.rng.random()
            times[number % 3] += [at] * (2 if self.rng.random() < REPEATED_SHARE else 1)
        self.made += count
        self._send(times)
        for partition, mine in times.items():
            self.events.setdefault(partition, []).extend(int(at.timestamp() * 1000) for at in mine)

    def _send(self, times: dict[int, list[datetime]]) -> None:
        # Partitions side by side, as they would arrive: the mirror's order of arrival is by Kafka's clock.
        for row in itertools.zip_longest(*times.values()):
            for partition, at in enumerate(row):
                if at is not None:
                    body = {"event_id": "v", "visit_id": 1, "event_time": at.isoformat()}
                    self.producer.send(self.shop.topic, value=json.dumps(body).encode(), partition=partition)
        self.producer.flush()

    @cached_property
    def producer(self) -> KafkaProducer:
        """One for all: it lives through a bounce of the broker, which a new one would not find."""
        return KafkaProducer(
            bootstrap_servers=self.shop.settings.bootstrap,
            enable_idempotence=True,
            delivery_timeout_ms=300_000,
            linger_ms=20,
            batch_size=262_144,
        )

    def history(self, spark: SparkSession, count: int, slices: int = 10) -> None:
        """Let live count a history that is mirrored meanwhile, and compacted half-way."""
        live = self.shop.deploy()
        for owner in (live, self.shop.mirror):
            self.shop.start(owner)
        for part in range(slices):
            self.produce(count // slices)
            if part == slices // 2:
                self._compact(spark)
        for owner in (live, self.shop.mirror):
            self.caught_up(owner)

    def _compact(self, spark: SparkSession) -> None:
        """Rewrite what is mirrored: from now on the times of its files tell nothing."""
        self.caught_up(self.shop.mirror)
        self.shop.stop(self.shop.mirror)
        path = mirror.table_path(self.shop.settings, self.shop.topic)
        mirror.compact(spark, path, datetime.now(UTC).date().isoformat(), 100_000)
        self.shop.start(self.shop.mirror)

    def caught_up(self, owner: str) -> None:
        """Wait until a stream has read to the end of the topic, supervised meanwhile."""
        end = self.shop.end()

        def there() -> bool:
            self.look(owner)
            return reached(self.shop.position(owner), end)

        wait_for(f"{owner} at {end}", there, PATIENCE)

    def look(self, owner: str, crash_at: str | None = None) -> None:
        """Look at a stream as its sensor does; the back-off after what we did to it is lifted.

        Args:
            owner: The stream.
            crash_at: Where a driver that this starts is to be killed.
        """
        variables = {} if crash_at is None else {crash.VARIABLE: crash_at}
        with self.looking, mock.patch.dict("os.environ", variables), suppress(RetryError, OSError):
            sighting = supervise.look(self.shop.settings, owner)
            assert sighting.state != supervise.QUARANTINED, sighting.message
            if sighting.state == supervise.WAITING and self.forgiven:
                self.forgiven -= 1
                self.shop.wish(owner)

    @contextmanager
    def loaded(self, slice_size: int) -> Iterator[None]:
        """Produce on, slice by slice, while the body runs; live and the mirror are supervised."""
        over = threading.Event()

        def load() -> None:
            # A rate, not a synchronisation.
            while not over.wait(PAUSE_SECONDS):
                self.produce(slice_size)
                for owner in (f"{self.shop.pipeline}-g1", self.shop.mirror):
                    self.look(owner)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(load)
            try:
                yield
            finally:
                over.set()
                running.result()

    def rewind(self, trouble: Trouble, slice_size: int) -> dict[str, int]:
        """Rewind from the beginning and hand over to Kafka under load; return what was counted.

        Args:
            trouble: What is done to it on the way.
            slice_size: Visits that are produced each second.
        """
        self.rewinds += 1
        rewind_id, job_id = f"rw-{self.rewinds:010d}", f"{self.shop.pipeline}-g{self.rewinds + 1}"
        with self.loaded(slice_size):
            self.shop.planned(rewind_id, **{"from": "earliest", "same_code": True})
            self.shop.step("spin_up", rewind_id)
            self._backfill(rewind_id, trouble)
            self._start(job_id, trouble)
            handoff = self._handoff(job_id)
            wait_for(f"{job_id} past its handoff", lambda: self._is_past(job_id, handoff), PATIENCE)
        self.caught_up(job_id)
        counted = self._checked(job_id)
        chunks = self._chunks(rewind_id)
        self.shop.abort(rewind_id)
        return {"chunks": chunks, **counted}

    def _backfill(self, rewind_id: str, trouble: Trouble) -> None:
        of = ("backfill", "--rewind-id", rewind_id)
        if trouble.bounced:
            with self._bounced(lambda: bool(self._chunks_done(rewind_id))):
                self.shop.submit(*of, patience=PATIENCE)
        for point in trouble.backfill:
            ended = self.shop.submit(*of, environment={crash.VARIABLE: point}, patience=PATIENCE)
            assert killed(ended), f"the backfill did not come to {point}: {ended.output[-3_000:]}"
        self.shop.run(*of, patience=PATIENCE)

    @contextmanager
    def _bounced(self, when: Callable[[], bool]) -> Iterator[None]:
        """Bounce the broker as soon as a condition holds while the body runs."""

        def bounce() -> None:
            wait_for("the moment of the bounce", when, PATIENCE)
            self.ground.kill_broker()
            self.ground.start_broker()

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(bounce)
            yield
            running.result()
        wait_for("the broker", lambda: local_broker.is_answering(self.shop.settings.bootstrap))

    def _start(self, job_id: str, trouble: Trouble) -> None:
        self.shop.wish(job_id)
        for point in trouble.stream:
            self._killed(job_id, point)
        self.look(job_id)
        if trouble.bounced:
            with self._bounced(lambda: self.shop.holder(job_id) is not None):
                pass

    def _killed(self, job_id: str, point: str) -> None:
        """Start a driver that is killed at a point, and wait for its end."""
        before, _ = self._lease(job_id)

        def launched() -> bool:
            self.look(job_id, None if point == LAUNCHED else point)
            return self._lease(job_id)[0] > before

        wait_for(f"{job_id} launched", launched, PATIENCE)
        # Not whoever lives: this one may have come to its point already.
        _, holder = self._lease(job_id)
        assert holder is not None
        if point == LAUNCHED:
            os.killpg(holder.group, signal.SIGKILL)
        wait_for(f"{job_id} killed", lambda: not leases.alive(holder), PATIENCE)

    def _lease(self, job_id: str) -> tuple[int, leases.Holder | None]:
        with self.shop.registry() as connection:
            lease = leases.read(connection, job_id)
        return (0, None) if lease is None else (lease.token, lease.holder)

    def _handoff(self, job_id: str) -> dict[int, int]:
        with self.shop.registry() as connection:
            found = generations.read(connection, job_id).handoff
        assert found is not None
        return found

    def _is_past(self, job_id: str, handoff: dict[int, int]) -> bool:
        self.look(job_id)
        at = self.shop.position(job_id)
        return all(at[p] > offset for p, offset in handoff.items())

    def _chunks_done(self, rewind_id: str) -> int:
        with self.shop.registry() as connection:
            return sum(chunk.state == "done" for chunk in chunk_log.read(connection, rewind_id))

    def _chunks(self, rewind_id: str) -> int:
        with self.shop.registry() as connection:
            found = chunk_log.read(connection, rewind_id)
        assert {chunk.state for chunk in found} == {"done"}
        return len(found)

    def _checked(self, job_id: str) -> dict[str, int]:
        """Hold each window of a job against the oracle, and its batches against the topic; count both."""
        with self.shop.registry() as connection:
            done = progress.recent(connection, job_id, 1_000_000)[::-1]
        assert oracle.contiguous(done, dict.fromkeys(range(3), 0)) == self.shop.end()
        wanted = oracle.counted(done, self.events)
        found = oracle.newest(self.shop.read(f"{self.shop.pipeline}-out-g{self.rewinds + 1}"))
        assert found == wanted
        closed = sum(start + oracle.WINDOW <= done[-1].closing_watermark for start in wanted)
        return {"closed": closed, "late": sum(map(len, self.events.values())) - sum(wanted.values())}
