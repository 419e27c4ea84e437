"""Replay a stretch of history through a live job's frozen code, into tables of its own that nothing else reads."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror as table
from rewind.core import names
from rewind.core.crash import side_effect
from rewind.core.model import Generation, LifecycleReader, MirrorState
from rewind.core.nights import Sample
from rewind.core.offsets import OffsetRange, Ranges, between, ends, starts
from rewind.core.pipeline import DELTA, Pipeline
from rewind.core.planning import chunks, warm_up
from rewind.core.settings import Settings
from rewind.registry import chunk_log, nightly_replays, progress
from rewind.registry.database import reading, writing
from rewind.runtime import tables
from rewind.runtime.drivers import supervise
from rewind.runtime.drivers.guard import Guard
from rewind.steps.base.throttle import Throttle
from rewind.steps.compare import comparison
from rewind.steps.feed.chunk import Chunks
from rewind.steps.feed.feeding import Feeding
from rewind.steps.generation import allocate
from rewind.transforms.comparing import compare

PARTS = 10_000
"""How finely a share of the keys is told."""


def prepared(
    spark: SparkSession, live: Generation, replay_id: str, ranges: Ranges, state: MirrorState, history: LifecycleReader
) -> Generation:
    """Return the replay of a live job as a generation: its code and settings, other tables.

    What it is expected to change is nothing: it is the same code. Where its state needs records from before the range,
    it starts with them.

    Args:
        spark: The session.
        live: The live job.
        replay_id: Id of the night.
        ranges: Source offsets of the night.
        state: The mirror.
        history: The registry's batches.

    Raises:
        RefusedError: Results of its range need records that the mirror does not hold.
    """
    own = live.declared
    pipeline = replace(own, output_format=DELTA, expected=(), row_rules=(), expectations={}, shared=False)
    start, trusted_from = starts(ranges), live.trusted_from
    if pipeline.stateful:
        seen = allocate.examined(spark, pipeline)
        earliest = {p: max(offset, live.start.get(p, 0)) for p, offset in state.start().items()}
        # Where any record may count, all that live has read is needed.
        wanted = start if pipeline.horizon_milliseconds is not None else earliest
        begun = warm_up.begin(wanted, earliest, pipeline, seen.delay, live, history)
        start, trusted_from = begun.start, warm_up.after_repeats(begun.trusted_from, seen.state, seen.delay)
    return replace(
        live,
        job_id=replay_id,
        start=start,
        handoff=None,
        output_topic=names.output_topic(own.output_topic, replay_id),
        dead_letter_topic=names.dead_letter_topic(own.output_topic, replay_id),
        frozen={**live.frozen, "config": pipeline.frozen(), "trusted_from": trusted_from},
    )


def make(spark: SparkSession, settings: Settings, replay: Generation) -> None:
    """Make the tables of a replay, which its night names."""
    for name in (replay.output_topic, replay.dead_letter_topic):
        with side_effect("replay.table"):
            allocate.table(spark, settings, replay, name)


def clear(settings: Settings, replay_id: str) -> None:
    """Delete all that a replay wrote; again is harmless."""
    with reading(settings.registry_url) as connection:
        made = nightly_replays.tables_of(connection, replay_id)
    with side_effect("replay.delete"):
        for name in made:
            tables.delete(settings, name, tables.id_of(settings, name))
        shutil.rmtree(supervise.generation_folder(settings, replay_id), ignore_errors=True)
    with side_effect("replay.forget"), writing(settings.registry_url) as connection:
        progress.forget(connection, replay_id)
        chunk_log.forget(connection, replay_id)
        nightly_replays.cleaned(connection, replay_id)


def run(
    spark: SparkSession,
    settings: Settings,
    replay: Generation,
    ranges: Ranges,
    version: int,
    sample: Sample,
    guard: Guard,
) -> None:
    """Process the records of a night, and those its state needs before them and has not seen.

    Raises:
        IntegrityError: The mirror lacks records of it, or holds different ones for one offset.
    """
    pipeline = replay.declared
    if pipeline.stateful:
        with reading(settings.registry_url) as connection:
            begun = progress.position(connection, replay.job_id, replay.start)
        _feed(spark, settings, replay, pipeline, between(begun, ends(ranges)), version, guard)
        return
    made = Chunks(spark, settings, replay, pipeline, guard, _sampled(sample))
    for number, part in enumerate(chunks.cut(ranges, pipeline.chunk_records)):
        made.run(number, part, version, {})


def only(
    spark: SparkSession, settings: Settings, replay: Generation, ranges: Ranges, version: int, sample: Sample
) -> comparison.Only | None:
    """Return what leaves the rows of records that were not replayed out of an output; None when all were.

    Rows of later records stay: they tell from where on the output has to be read the next night.
    """
    if sample.whole:
        return None
    pipeline = replay.declared
    rows = table.read(spark, table.table_path(settings, pipeline.source_topic), version)
    taken = rows.where(table.in_ranges(ranges, replay.topic_id)).where(_sampled(sample))
    places = taken.select(F.col("partition").alias("p"), F.col("offset").alias("o")).distinct()

    def left(located: DataFrame) -> DataFrame:
        mine = located.where(F.col("p").isin(list(ranges)))
        within = mine.where(compare.comparable(ranges))
        later = mine.where(~compare.comparable(ranges))
        return within.join(places, ["p", "o"], "left_semi").select(*located.columns).unionByName(later)

    return left


def _sampled(sample: Sample) -> Column:
    """Return whether a source record is replayed; records without a key count for themselves."""
    if sample.share == 1.0:
        return F.lit(True)
    by_place = F.concat_ws(":", F.col("partition"), F.col("offset")).cast("binary")
    return F.pmod(F.xxhash64(F.coalesce("key", by_place)), F.lit(PARTS)) < round(sample.share * PARTS)


def _feed(
    spark: SparkSession,
    settings: Settings,
    replay: Generation,
    pipeline: Pipeline,
    ranges: Mapping[int, OffsetRange],
    version: int,
    guard: Guard,
) -> None:
    feeding = Feeding(spark, settings, replay, pipeline, guard, replay.job_id)
    cut = feeding.cut(dict(ranges), version)
    with side_effect("replay.cut"), writing(settings.registry_url) as connection:
        wave = chunk_log.next_wave(connection, replay.job_id)
        chunk_log.add_wave(connection, replay.job_id, wave, cut)
        todo = [chunk for chunk in chunk_log.read(connection, replay.job_id) if chunk.wave == wave]
    feeding.run(todo, version, {}, Throttle(lambda: (False, None), time.monotonic, time.sleep))
