"""The stream of a generation: from its handoff on, micro-batch by micro-batch, for ever."""

from __future__ import annotations

import logging
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rewind.adapters import checkpoint, kafka
from rewind.adapters.session import session_of
from rewind.core.errors import IntegrityError, RefusedError
from rewind.core.model import Generation, Topic
from rewind.core.offsets import Vector, all_told, between, ends, starts, total
from rewind.core.pipeline import KAFKA, Pipeline
from rewind.core.planning.planner import RECREATED_CURE, recreated
from rewind.core.settings import Settings
from rewind.registry import generations, progress
from rewind.registry.database import reading
from rewind.runtime.drivers import bundle, supervise
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.kafka.broker import Broker
from rewind.steps.feed import feeding
from rewind.steps.generation.logic import load_logic
from rewind.steps.generation.query import Batch, query_of
from rewind.steps.streaming.driver import Driver, Source
from rewind.steps.streaming.publish import Publisher

log = logging.getLogger(__name__)


def run(settings: Settings, job_id: str) -> None:
    """Run the stream of a generation until it is wished to drain.

    Raises:
        IntegrityError: A module of ours was not loaded from the generation's frozen bundle.
        LeaseHeldError: Another driver of the generation lives.
        RefusedError: The source topic was recreated, or the checkpoint is not this generation's.
    """
    with reading(settings.registry_url) as connection:
        generation = generations.read(connection, job_id)
    pipeline = generation.declared
    load_logic(pipeline)
    frozen = supervise.frozen_bundle(settings, job_id, generation.bundle)
    bundle.check_origin(sys.modules, frozen.folder)
    with Guard(settings, job_id) as guard:
        topic = checked_topic(settings, pipeline, generation)
        spark = session_of(generation, pipeline)
        place = str(supervise.checkpoint_folder(settings, job_id))
        if pipeline.stateful:
            feeding.check_swap(spark, settings, job_id)
        start = first_offsets(spark, place, generation, topic)
        source = Source(job_id, topic.name, place, group=job_id, stateful=pipeline.stateful)
        publisher = Publisher(spark, settings, generation, pipeline, guard) if pipeline.shared else None
        driver = Driver(settings, source, guard, spark, publisher.publish if publisher is not None else None)
        query = query_of(spark, settings, generation, pipeline, guard.token)

        def write(rows: DataFrame, number: int) -> None:
            driver.gate()
            ranges = between(
                checkpoint.start_offsets(spark, place, number), checkpoint.end_offsets(spark, place, number) or {}
            )

            def records(active: SparkSession) -> DataFrame | None:
                if not total(ranges):
                    return None
                read = kafka.read_range(active, settings, topic.name, starts(ranges), ends(ranges), pipeline.isolation)
                return kafka.as_records(read)

            query.write(rows, Batch(number, checkpoint.query_id(spark, place), ranges), records)

        reader = kafka.stream_reader(spark, settings, topic.name, start, pipeline.isolation, pipeline.max_offsets)
        if pipeline.stateful:
            reader = reader.name(checkpoint.LIVE)

        def begin() -> StreamingQuery:
            writer = query.over(kafka.as_records(reader.load())).foreachBatch(write).queryName(job_id)
            every = f"{int(pipeline.trigger_seconds * 1000)} milliseconds"
            return writer.trigger(processingTime=every).option("checkpointLocation", place).start()

        log.info("%s reads from %s with token %d", job_id, start, guard.token)
        again = checkpoint.uncommitted(spark, place)
        if total(again) and pipeline.output_format == KAFKA:
            log.warning("%s runs a batch again: possibly repeated are %s", job_id, all_told(again))
        driver.run(begin)
        log.info("%s has drained", job_id)


def checked_topic(settings: Settings, pipeline: Pipeline, generation: Generation) -> Topic:
    """Return the source topic when it is still the one that a generation was made for.

    Raises:
        RefusedError: It is gone, or was recreated: its offsets mean other records.
    """
    topic = Broker(settings, pipeline.isolation).topic(pipeline.source_topic)
    if topic is None:
        raise RefusedError(
            "source.topic", f"{pipeline.source_topic!r} is not on the broker", "Create it, or fix the name"
        )
    if topic.id != generation.topic_id:
        with reading(settings.registry_url) as connection:
            position = progress.position(connection, generation.job_id, generation.handoff)
        raise RefusedError("source.topic", recreated(topic, generation.topic_id, position), RECREATED_CURE)
    return topic


def first_offsets(spark: SparkSession, place: str, generation: Generation, topic: Topic) -> Vector:
    """Return where the query starts, checked against what its checkpoint says.

    A partition that was added after the handoff was fixed starts at its earliest offset.

    Raises:
        RefusedError: The generation has no handoff yet.
        IntegrityError: The checkpoint began elsewhere: it is not this generation's.
    """
    if generation.handoff is None:
        raise RefusedError("handoff", f"{generation.job_id} has none yet", "Let its backfill finish first")
    began = checkpoint.first_offsets(spark, place)
    if began is not None:
        other = {p: (o, generation.handoff[p]) for p, o in began.items() if generation.handoff.get(p, o) != o}
        if other:
            last = checkpoint.last_committed(spark, place)
            raise IntegrityError(f"{place} is not empty (last batch {last}): began, asked per partition: {other}")
    added = {p: o for p, o in topic.earliest.items() if p not in generation.handoff}
    for p, offset in sorted(added.items()):
        log.info("partition %d of %s was added: it starts at %d", p, topic.name, offset)
    return {**generation.handoff, **added}
