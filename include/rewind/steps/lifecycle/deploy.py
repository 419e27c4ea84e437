"""The first generation of a pipeline: from an end of the topic, or from the positions of an existing job."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rewind.adapters import checkpoint
from rewind.adapters.session import session
from rewind.core import lifecycle, names
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.model import Generation, Topic
from rewind.core.offsets import Vector, all_told, total
from rewind.core.pipeline import Pipeline
from rewind.core.planning import requested_range
from rewind.core.settings import Settings
from rewind.declared import pipelines
from rewind.registry import generations, streams
from rewind.registry.database import reading, writing
from rewind.runtime import announce, rights
from rewind.runtime.drivers import bundle
from rewind.runtime.kafka.broker import Broker
from rewind.steps.generation import allocate, allocate_shared, cut_trial

log = logging.getLogger(__name__)


def run(settings: Settings, pipeline: str, start: str) -> None:
    """Make the first generation of a pipeline live and wish it to run; again is harmless.

    Raises:
        RefusedError: Unknown pipeline or topic, bad start, leftovers of its names, or another generation is live.
    """
    declared = pipelines.load(settings.pipelines, pipeline)
    topic = _source(settings, declared)
    job_id = names.job_id(pipeline, 1)
    with reading(settings.registry_url) as connection:
        found = generations.live(connection, pipeline)
    if found is not None and found[0].job_id != job_id:
        raise RefusedError("pipeline", f"{pipeline} has {found[0].job_id} live", "Use its rewind DAG")
    code = bundle.running(Path(sys.argv[0]))
    spark = session(f"deploy {pipeline}", declared.session_time_zone)
    seen = allocate.examined(spark, declared)
    cut_trial.check(spark, settings, declared)
    begin = positions(spark, settings, topic, start)
    made = Generation(
        job_id=job_id,
        pipeline=pipeline,
        state=lifecycle.CANDIDATE,
        topic_id=topic.id,
        bundle=code.hash,
        frozen=allocate.frozen_configuration(settings, declared, seen, topic, epoch=1),
        start=begin,
        handoff=begin,
        output_topic=names.output_topic(declared.output_topic, job_id),
        dead_letter_topic=names.dead_letter_topic(declared.output_topic, job_id),
    )
    if declared.shared:
        allocate_shared.refuse_leftover(settings, declared)
    rights.before_making(Broker(settings), declared, job_id, (made.output_topic, made.dead_letter_topic), None)
    made = allocate.record(settings, made, rewind_id=None)
    allocate.make(settings, made, code, topic, topic)
    if declared.shared:
        allocate_shared.make(settings, made, declared, topic)
    _go_live(settings, made)
    log.info("%s is live from %s, writing to %s", job_id, made.handoff, made.output_topic)


def positions(spark: SparkSession, settings: Settings, topic: Topic, start: str) -> Vector:
    """Return the first offset of each partition that a start names.

    Raises:
        RefusedError: None of the forms, or a group or checkpoint without usable positions for this topic.
    """
    kind, _, name = start.partition(":")
    if start == "earliest":
        return dict(topic.earliest)
    if start == "latest":
        return dict(topic.latest)
    if kind == "group" and name:
        return _whole(Broker(settings).group_offsets(name, topic.name), topic, f"group {name!r}")
    if kind == "checkpoint" and name:
        again = checkpoint.uncommitted(spark, name)
        if total(again):
            log.warning("%s ended within a batch: possibly repeated are %s", name, all_told(again))
        return _whole(_committed(spark, name), topic, f"checkpoint {name!r}")
    raise RefusedError("from", f"{start!r} is no start", f"Write {requested_range.ORIGIN_FORMS}")


def _committed(spark: SparkSession, place: str) -> Vector:
    last = checkpoint.last_committed(spark, place)
    return {} if last is None else checkpoint.end_offsets(spark, place, last) or {}


def _whole(found: Vector, topic: Topic, what: str) -> Vector:
    if not found:
        raise RefusedError(
            "from", f"{what} has no committed position on {topic.name!r}", f"Write {requested_range.ORIGIN_FORMS}"
        )
    unknown = sorted(found.keys() - topic.latest.keys())
    gone = sorted(
        p for p in found.keys() & topic.earliest.keys() if not topic.earliest[p] <= found[p] <= topic.latest[p]
    )
    if unknown or gone:
        problem = f"{what} has positions outside the topic in partitions {sorted({*unknown, *gone})}"
        raise RefusedError("from", problem, "Was the topic recreated? Start from earliest")
    # A partition without a position is one that the old job never saw: it starts at its first record.
    return {p: found.get(p, topic.earliest[p]) for p in topic.latest}


def _source(settings: Settings, pipeline: Pipeline) -> Topic:
    topic = Broker(settings, pipeline.isolation).topic(pipeline.source_topic)
    if topic is None:
        raise RefusedError(
            "source.topic", f"{pipeline.source_topic!r} is not on the broker", "Create it, or fix the name"
        )
    return topic


def _go_live(settings: Settings, made: Generation) -> None:
    with side_effect("pointer.set"), writing(settings.registry_url) as connection:
        epoch = generations.set_first(connection, made.job_id)
        streams.wish(connection, made.job_id, streams.GENERATION, streams.RUN)
        announce.prepare(connection, made.pipeline, epoch, None, made.job_id)
    announce.publish(settings, made.pipeline, epoch)
