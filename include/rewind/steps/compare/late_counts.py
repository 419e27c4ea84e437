"""How many records two jobs with state left out as late, for the report: a class of results alone does not tell it."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror as table
from rewind.adapters.mirror_reader import read_state
from rewind.core.model import Batch, Generation, MirrorState
from rewind.core.offsets import Ranges, between, lower
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.registry import progress
from rewind.registry.database import reading
from rewind.runtime.kafka.broker import Broker
from rewind.steps.compare.lateness import marks_of
from rewind.transforms.comparing import lateness
from rewind.transforms.records import results

LATEST_MILLISECONDS = 7 * 24 * 3_600_000
"""How far back in event time late records are counted: each rise of the watermark since then is held in memory."""


def late_records(spark: SparkSession, settings: Settings, *jobs: Generation) -> dict[str, int]:
    """Return how many records each job left out as late, by its recorded batches and the mirror, as far as that came.

    What lies beyond the mirror is not waited for: this is told, and gates nothing.

    Args:
        spark: The session.
        settings: The installation.
        jobs: Generations of one pipeline with state.

    Returns:
        Records by job id; empty without a mirror.
    """
    pipeline = jobs[-1].declared
    topic = Broker(settings).topic(pipeline.source_topic)
    state = None if topic is None else read_state(settings, topic, pipeline.transactional)
    if state is None:
        return {}
    return {job.job_id: _late(spark, settings, pipeline, state, job) for job in jobs}


def _late(spark: SparkSession, settings: Settings, pipeline: Pipeline, state: MirrorState, job: Generation) -> int:
    rows = table.read(spark, table.table_path(settings, pipeline.source_topic), state.version)
    mine = rows.where(table.in_ranges(_read_by(settings, job, state), job.topic_id))
    records = results.usable(mine.dropDuplicates(["partition", "offset"]), pipeline)
    newest = _newest(settings, job)
    since = 0 if newest is None else max(0, newest.closing_watermark - LATEST_MILLISECONDS)
    timed = lateness.with_closing(records, pipeline).where(F.col(lateness.CLOSES) > since)
    return lateness.late(spark, timed, marks_of(settings, job, since)).count()


def _newest(settings: Settings, job: Generation) -> Batch | None:
    with reading(settings.registry_url) as connection:
        return progress.newest(connection, job.job_id)


def _read_by(settings: Settings, job: Generation, state: MirrorState) -> Ranges:
    with reading(settings.registry_url) as connection:
        position = progress.position(connection, job.job_id, job.handoff)
    return between({p: max(job.start.get(p, 0), o) for p, o in state.start().items()}, lower(position, state.end()))
