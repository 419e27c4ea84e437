"""Run one streaming query under its lease until it is wished to drain: the loop of streams and mirrors."""

from __future__ import annotations

import logging
import os
import queue
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from rewind.adapters import checkpoint
from rewind.core.crash import side_effect
from rewind.core.errors import IntegrityError, RetryError, RewindError
from rewind.core.model import Batch
from rewind.core.settings import Settings
from rewind.registry import leases, progress, streams
from rewind.registry.database import now, reading, writing
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import failures

POLL_SECONDS = 0.5

log = logging.getLogger(__name__)


class Drained(Exception):  # noqa: N818 - an end that was wished for, not an error
    """Raised at the start of a batch that must not be written, because the stream is to drain."""


@dataclass(frozen=True)
class Source:
    """What a driver reads.

    Attributes:
        owner: Job id, or the mirror's owner name.
        topic: Source topic.
        checkpoint: Checkpoint of its query.
        group: Consumer group that gets its positions.
        stateful: Whether its query keeps state: then batches without records, which close results, are recorded too.
    """

    owner: str
    topic: str
    checkpoint: str
    group: str
    stateful: bool = False


class Driver:
    """One running query, its gate and its book-keeping."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        guard: Guard,
        spark: SparkSession,
        publish: Callable[[int], None] | None = None,
    ) -> None:
        """Keep the parts and listen for wishes; nothing runs yet.

        Args:
            settings: The installation.
            source: What is read.
            guard: The lease.
            spark: The session.
            publish: Called again and again with the newest committed batch, for a pipeline with a shared output.
        """
        self._settings = settings
        self._source = source
        self._guard = guard
        self._spark = spark
        self._events: queue.SimpleQueue[_Committed] = queue.SimpleQueue()
        self._pending: list[Batch] = []
        self._draining = False
        self._parent = os.getppid()
        self._asked_at = 0.0
        self._publisher = publish
        self._published_at = 0.0
        signal.signal(signal.SIGTERM, self._on_signal)
        spark.streams.addListener(_Listener(self._events, source.stateful))

    def gate(self) -> None:
        """Check, at the start of a batch, that it may be written.

        Raises:
            Drained: The stream is to drain: this batch belongs to the next driver.
            LeaseLostError: A newer token was handed out.
        """
        if self._draining:
            raise Drained
        self._guard.check()

    def run(self, start: Callable[[], StreamingQuery]) -> None:
        """Start the query and stay with it until it has drained.

        Raises:
            RewindError: The query failed, or the JVM is gone.
            LeaseLostError: A newer token was handed out.
        """
        self._reconcile()
        query = start()
        try:
            while not self._ended(query):
                # Also where no record comes that would bring a batch to its gate.
                self._guard.check_token()
                self._record()
                self._publish()
                self._ask()
                self._drain_idle(query)
        finally:
            self._record()
        # Readers must not wait for the next driver to see what this one has committed.
        self._published_at = 0.0
        self._publish()

    def _ended(self, query: StreamingQuery) -> bool:
        if os.getppid() != self._parent:
            # A Python driver survives the kill of its JVM; without it nothing here can work.
            raise RewindError(f"{self._source.owner}: the JVM is gone")
        try:
            return bool(query.awaitTermination(POLL_SECONDS))  # type: ignore[arg-type]
        except StreamingQueryException as error:
            if self._draining and Drained.__name__ in str(error):
                return True
            known = failures.typed(error)
            raise (RewindError(f"{self._source.owner}: {error}") if known is error else known) from error

    def _ask(self) -> None:
        if self._draining or time.monotonic() - self._asked_at < 1:
            return
        self._asked_at = time.monotonic()
        try:
            with reading(self._settings.registry_url) as connection:
                found = streams.read(connection, self._source.owner)
        except RetryError as away:
            log.warning("%s: desired state not read: %s", self._source.owner, away)
            return
        self._draining = found is not None and found.wish == streams.DRAIN

    def _publish(self) -> None:
        if self._publisher is None or time.monotonic() - self._published_at < 1:
            return
        last = checkpoint.last_committed(self._spark, self._source.checkpoint)
        if last is not None:
            self._publisher(last)
        self._published_at = time.monotonic()

    def _drain_idle(self, query: StreamingQuery) -> None:
        # With the gate shut a query that is not in a trigger has committed its last batch, and any batch that
        # begins now ends at the gate before it writes: stopping it can cut nothing off.
        if self._draining and not query.status["isTriggerActive"]:
            query.stop()

    def _reconcile(self) -> None:
        """Record what a crash may have kept from the registry or from the group: the last committed batch.

        Of a query with state all batches that the registry lacks: what was late is found by each of them.
        """
        last = checkpoint.last_committed(self._spark, self._source.checkpoint)
        if last is None:
            return
        with reading(self._settings.registry_url) as connection:
            newest = progress.newest(connection, self._source.owner)
        recorded = newest.rows if newest is not None and newest.batch == last else None
        first = last if newest is None or not self._source.stateful else min(newest.batch + 1, last)
        for batch in range(first, last):
            self._events.put(_Committed(batch, None))
        found = checkpoint.logged(self._spark, self._source.checkpoint, last)
        if found is not None and found.source == checkpoint.FEED:
            # The backfill records what it feeds, and a feed is not a position in Kafka.
            return
        self._events.put(_Committed(last, recorded))

    def _record(self) -> None:
        while not self._events.empty():
            self._pending.append(self._batch(self._events.get()))
        if not self._pending:
            return
        try:
            with side_effect("progress.record"), writing(self._settings.registry_url) as connection:
                # A driver that was frozen and declared dead has lost its token: its successor is further on.
                leases.renew(connection, self._source.owner, self._guard.token)
                for batch in self._pending:
                    progress.record(connection, self._source.owner, self._guard.token, batch)
            with side_effect("group.commit"):
                Broker(self._settings).commit(self._source.group, self._source.topic, self._pending[-1].end)
        except RetryError as away:
            log.warning("%s: progress kept back: %s", self._source.owner, away)
            return
        self._pending.clear()

    def _batch(self, committed: _Committed) -> Batch:
        # The checkpoint, not the event, says from where to where: a first batch's event names no start.
        place = self._source.checkpoint
        start = checkpoint.start_offsets(self._spark, place, committed.batch)
        end = checkpoint.end_offsets(self._spark, place, committed.batch)
        logged = checkpoint.logged(self._spark, place, committed.batch)
        if end is None or logged is None:
            raise IntegrityError(f"{place}: batch {committed.batch} is committed but has no offsets. {checkpoint.CURE}")
        span = sum(offset - start.get(p, 0) for p, offset in end.items())
        rows = span if committed.rows is None else committed.rows
        late = checkpoint.late_watermark(self._spark, place, committed.batch)
        return Batch(committed.batch, start, end, rows, now(), late, logged.watermark)

    def _on_signal(self, *_: Any) -> None:
        self._draining = True


@dataclass(frozen=True)
class _Committed:
    """A batch that was committed; its rows are None when only the checkpoint is known."""

    batch: int
    rows: int | None


class _Listener(StreamingQueryListener):
    """Hands each committed batch to the driver's loop, which may fail loudly; here an error would be swallowed."""

    def __init__(self, events: queue.SimpleQueue[_Committed], every: bool) -> None:
        self._events = events
        self._every = every

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        source = event.progress.sources[0]
        if self._every or event.progress.numInputRows or source.startOffset != source.endOffset:
            self._events.put(_Committed(event.progress.batchId, event.progress.numInputRows))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""
