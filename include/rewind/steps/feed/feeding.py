"""Rebuild the state of a candidate from its history: a feed of its own, read by the query that Kafka takes over.

The query has one checkpoint from the first chunk on, so nothing of state or watermark is lost between history and
Kafka. It may be killed anywhere: what is in the feed is told by the feed's log, what was read of it by the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from rewind.adapters import checkpoint, feed
from rewind.core import names
from rewind.core.crash import side_effect
from rewind.core.errors import IntegrityError, RefusedError
from rewind.core.model import Batch, Generation
from rewind.core.offsets import OffsetRange, Ranges, Vector, ends
from rewind.core.pipeline import Pipeline
from rewind.core.planning import chunks
from rewind.core.settings import Settings
from rewind.registry import chunk_log, progress
from rewind.registry.chunk_log import Chunk
from rewind.registry.database import now, reading, writing
from rewind.runtime.drivers import supervise
from rewind.runtime.drivers.guard import Guard
from rewind.steps.base.throttle import Throttle
from rewind.steps.feed.history import History
from rewind.steps.generation import query

log = logging.getLogger(__name__)


class Feeding:
    """Feeds one candidate."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        generation: Generation,
        pipeline: Pipeline,
        guard: Guard,
        rewind_id: str,
    ) -> None:
        """Examine the logic once, and record what an attempt before this one has committed and not recorded."""
        self._spark = spark
        self._settings = settings
        self._generation = generation
        self._pipeline = pipeline
        self._guard = guard
        self._rewind_id = rewind_id
        self._history = History(spark, settings, pipeline, generation.topic_id)
        self._query = query.query_of(spark, settings, generation, pipeline, guard.token)
        self._feed = feed_path(settings, generation.job_id)
        self._checkpoint = str(supervise.checkpoint_folder(settings, generation.job_id))
        self._settle()

    def cut(self, ranges: Ranges, version: int) -> list[Ranges]:
        """Return a wave's offsets in chunks, in the order in which they arrived."""
        found = feed.arrivals(self._spark, self._history.path, version, ranges, self._generation.topic_id)
        return chunks.by_arrival(ranges, found, self._pipeline.chunk_records)

    def run(
        self,
        todo: Sequence[Chunk],
        version: int,
        accepted: Mapping[int, Sequence[OffsetRange]],
        throttle: Throttle,
    ) -> None:
        """Put the chunks of a wave into the feed and let the query read it to its end.

        Raises:
            IntegrityError: The mirror contradicts its own records, or a batch was not a chunk.
        """
        if taken_over(self._spark, self._checkpoint):
            # Read again, the feed would be followed by Kafka from the handoff once more, without an error.
            log.info("%s has read Kafka: its history is behind it", self._generation.job_id)
            return
        with side_effect("feed.create"):
            feed.create(self._spark, self._feed)
        for chunk in todo:
            throttle.before()
            self._fill(chunk, version, accepted)
        self._drain(throttle)

    def _fill(self, chunk: Chunk, version: int, accepted: Mapping[int, Sequence[OffsetRange]]) -> None:
        with side_effect("chunk.start"), writing(self._settings.registry_url) as connection:
            chunk_log.begin(connection, self._rewind_id, chunk.number)
        rows, records, repeats = self._history.read(chunk.ranges, version, accepted)
        with side_effect("chunk.count"), writing(self._settings.registry_url) as connection:
            chunk_log.count(connection, self._rewind_id, chunk.number, records, repeats)
        if not records:
            # Markers of transactions alone, or accepted gaps: the batch that comes next passes them.
            with side_effect("chunk.finish"), writing(self._settings.registry_url) as connection:
                chunk_log.finish(connection, self._rewind_id, chunk.number, 0, repeats)
            return
        with reading(self._settings.registry_url) as connection:
            place = sum(c.number < chunk.number for c in chunk_log.fed(connection, self._rewind_id))
        self._guard.check()
        with side_effect("feed.append"):
            feed.append(rows, self._feed, self._generation.job_id, place)

    def _drain(self, throttle: Throttle) -> None:
        if not feed.chunks(self._spark, self._feed):
            return

        def write(rows: DataFrame, batch: int) -> None:
            # The batch before this one is committed.
            self._settle()
            throttle.before()
            self._guard.check()
            chunk = self._chunk_of(batch)
            self._write(rows, batch, chunk)
            throttle.after(0 if chunk is None else chunk.rows or 0)

        reader = feed.stream(self._spark).load(self._feed)
        writer = self._query.over(reader).foreachBatch(write).queryName(self._generation.job_id)
        writer = writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True)
        writer.start().awaitTermination()
        self._settle()

    def _write(self, rows: DataFrame, number: int, chunk: Chunk | None) -> None:
        def records(active: SparkSession) -> DataFrame | None:
            if chunk is None:
                return None
            return feed.records(active, self._feed, self._consumed(number - 1))

        query_id = checkpoint.query_id(self._spark, self._checkpoint)
        self._query.write(rows, query.Batch(number, query_id, {} if chunk is None else chunk.ranges), records)

    def _settle(self) -> None:
        """Record each committed batch that the registry lacks, and that its chunk is done."""
        last = checkpoint.last_committed(self._spark, self._checkpoint)
        if last is None:
            return
        with reading(self._settings.registry_url) as connection:
            newest = progress.newest(connection, self._generation.job_id)
        at = dict(self._generation.start) if newest is None else newest.end
        for number in range(0 if newest is None else newest.batch + 1, last + 1):
            chunk = self._chunk_of(number)
            batch = self._batch(number, chunk, at)
            at = batch.end
            with side_effect("progress.record"), writing(self._settings.registry_url) as connection:
                progress.record(connection, self._generation.job_id, self._guard.token, batch)
                if chunk is not None:
                    chunk_log.finish(connection, self._rewind_id, chunk.number, chunk.rows or 0, chunk.repeats or 0)
                    log.info("chunk %d done: %d records", chunk.number, chunk.rows)

    def _batch(self, number: int, chunk: Chunk | None, at: Vector) -> Batch:
        logged = checkpoint.logged(self._spark, self._checkpoint, number)
        late = checkpoint.late_watermark(self._spark, self._checkpoint, number)
        closing = 0 if logged is None else logged.watermark
        if chunk is None:
            return Batch(number, at, at, 0, now(), late, closing)
        return Batch(number, at, {**at, **ends(chunk.ranges)}, chunk.rows or 0, now(), late, closing)

    def _chunk_of(self, batch: int) -> Chunk | None:
        """Return the chunk that a batch reads, or None for one without records.

        Raises:
            IntegrityError: It reads more than one, or a part of one.
        """
        done = [self._consumed(number) for number in (batch - 1, batch)]
        if done[1] - done[0] not in (0, 1):
            raise IntegrityError(f"batch {batch} reads chunks {done[0]} to {done[1]} of its feed: it must be one")
        if done[0] == done[1]:
            return None
        with reading(self._settings.registry_url) as connection:
            return chunk_log.fed(connection, self._rewind_id)[done[0]]

    def _consumed(self, batch: int) -> int:
        logged = checkpoint.logged(self._spark, self._checkpoint, batch) if batch >= 0 else None
        return 0 if logged is None else feed.consumed(logged.end)


def feed_path(settings: Settings, job_id: str) -> str:
    """Return the path of a generation's feed, which it owns with its folder."""
    return str(names.inside(supervise.generation_folder(settings, job_id), "feed", "feed"))


def taken_over(spark: SparkSession, place: str) -> bool:
    """Return whether a query has begun a batch of Kafka: from then on its feed is never read again."""
    begun = checkpoint.last_begun(spark, place)
    logged = None if begun is None else checkpoint.logged(spark, place, begun)
    return logged is not None and logged.source != checkpoint.FEED


def check_swap(spark: SparkSession, settings: Settings, job_id: str) -> None:
    """Check that Kafka may take over from a generation's feed.

    Raises:
        RefusedError: The feed was not read to its end, or its newest batch is not committed. Spark would go on with
            Kafka all the same, and what was not committed would be lost without a word.
    """
    place, path = str(supervise.checkpoint_folder(settings, job_id)), feed_path(settings, job_id)
    there = feed.chunks(spark, path)
    if not there or taken_over(spark, place):
        return
    begun, committed = checkpoint.last_begun(spark, place), checkpoint.last_committed(spark, place)
    cure = "Let its backfill finish first: clear that task"
    if begun is None or begun != committed:
        problem = f"batch {begun} of {job_id}'s history is not committed (the last one that is: {committed})"
        raise RefusedError("handoff", problem, cure)
    logged = checkpoint.logged(spark, place, begun)
    read = 0 if logged is None else feed.consumed(logged.end)
    if read != there:
        raise RefusedError("handoff", f"{job_id} has read {read} of the {there} chunks of its history", cure)
