"""Whether two results differ by nothing but what each job left out as late."""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror as table
from rewind.adapters.mirror_reader import read_state
from rewind.core.errors import RetryError
from rewind.core.model import Generation
from rewind.core.offsets import Vector, between, higher, reached, to_spark_json
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.registry import progress
from rewind.registry.database import reading, writing
from rewind.runtime.kafka.broker import Broker
from rewind.steps.feed.history import History
from rewind.steps.generation.logic import empty_records, load_logic
from rewind.transforms.comparing import compare, keyed, lateness
from rewind.transforms.comparing.lateness import NEVER_READ, Mark
from rewind.transforms.logic import contract
from rewind.transforms.records import results

MIRROR_PATIENCE_SECONDS = 120.0
"""How long the mirror may take to reach what both jobs have read."""


def explained(
    spark: SparkSession,
    settings: Settings,
    live: Generation,
    candidate: Generation,
    doubtful: DataFrame,
    sides: compare.Sides,
) -> DataFrame:
    """Return the keys whose results are, on both sides, what the candidate's code makes of the records kept there.

    Args:
        spark: The session.
        settings: The installation.
        live: The one job.
        candidate: The other.
        doubtful: Pairs of results that differ (`keyed.paired`).
        sides: Columns of both.

    Returns:
        `key`, each once.

    Raises:
        RetryError: The mirror does not reach what the jobs have read.
    """
    pipeline = candidate.declared
    span = doubtful.agg(F.min("starts").alias("first"), F.max("ends").alias("last")).first()
    if span is None or span["first"] is None:
        return doubtful.select("key").limit(0)
    records = lateness.with_closing(_records(spark, settings, live, candidate, pipeline), pipeline)
    margin = pipeline.horizon_milliseconds or 0
    if pipeline.horizon_milliseconds is not None:
        # Only what can touch one of these results.
        records = records.where(F.col(lateness.CLOSES).between(span["first"] - margin, span["last"] + margin))
    keys = doubtful.select("key", "l", "c", "in_live", "in_candidate")
    for generation, side, there in ((live, "l", "in_live"), (candidate, "c", "in_candidate")):
        kept = lateness.accepted(spark, records, marks_of(settings, generation, span["first"] - margin))
        made = keyed.kept_versions(_computed(spark, pipeline, kept))
        same = keys.select("key", F.col(side).alias("l"), F.col(there).alias("in_live"))
        same = same.join(made.select("key", F.col("side").alias("c"), F.lit(True).alias("in_candidate")), "key", "left")
        columns = sides.live if side == "l" else sides.candidate
        known = compare.with_class(same, compare.Sides(columns, sides.candidate, ()))
        absent = ~F.coalesce("in_live", F.lit(False)) & ~F.coalesce("in_candidate", F.lit(False))
        equal = known.where(absent | (F.col("class") == compare.EQUAL)).select("key")
        keys = keys.join(equal, "key", "left_semi")
    return keys.select("key")


def left_out_by_one(
    spark: SparkSession, settings: Settings, live: Generation, candidate: Generation, pipeline: Pipeline, since: int
) -> DataFrame:
    """Return the source records that one of two jobs left out as late and the other did not.

    Args:
        spark: The session.
        settings: The installation.
        live: The one job.
        candidate: The other.
        pipeline: Theirs.
        since: Records whose first result closes at or before this instant do not matter, in milliseconds since 1970.

    Raises:
        RetryError: The mirror does not reach what the jobs have read.
    """
    rows = _rows(spark, settings, live, candidate, pipeline)
    timed = lateness.with_closing(results.usable(rows, pipeline), pipeline).where(F.col(lateness.CLOSES) > since)
    late = [lateness.late(spark, timed, marks_of(settings, job, since)) for job in (live, candidate)]
    once = late[0].union(late[1]).groupBy("p", "o").count().where(F.col("count") == 1)
    return rows.join(once, on=(rows["partition"] == once["p"]) & (rows["offset"] == once["o"]), how="left_semi")


def _computed(spark: SparkSession, pipeline: Pipeline, records: DataFrame) -> DataFrame:
    logic = load_logic(pipeline)
    # Cut off from what follows: Spark 4.2 pushes a condition on a session's start below the merge of sessions.
    rows = logic(records).localCheckpoint()
    return results.values(rows, pipeline, contract.examine(logic, pipeline, empty_records(spark)))


def _records(
    spark: SparkSession, settings: Settings, live: Generation, candidate: Generation, pipeline: Pipeline
) -> DataFrame:
    """Return the parsed records that either job has read, from the mirror."""
    return results.usable(_rows(spark, settings, live, candidate, pipeline), pipeline)


def _rows(
    spark: SparkSession, settings: Settings, live: Generation, candidate: Generation, pipeline: Pipeline
) -> DataFrame:
    """Return the source records that either job has read, each once, from the mirror."""
    with reading(settings.registry_url) as connection:
        ends = higher(*(progress.position(connection, job.job_id, job.handoff) for job in (live, candidate)))
    begin = {p: min(job.start.get(p, 0) for job in (live, candidate)) for p in ends}
    version = _mirrored(settings, pipeline, ends)
    rows = table.read(spark, table.table_path(settings, pipeline.source_topic), version)
    ranges = between(begin, ends)
    History(spark, settings, pipeline, candidate.topic_id).refuse_void(ranges, version)
    wanted = rows.where(table.in_ranges(ranges, candidate.topic_id))
    return wanted.dropDuplicates(["partition", "offset"])


def _mirrored(settings: Settings, pipeline: Pipeline, position: Vector) -> int:
    deadline = time.monotonic() + MIRROR_PATIENCE_SECONDS
    while True:
        topic = Broker(settings).topic(pipeline.source_topic)
        state = None if topic is None else read_state(settings, topic, pipeline.transactional)
        if state is not None and reached(state.end(), position):
            return state.version
        if time.monotonic() > deadline:
            at = to_spark_json(pipeline.source_topic, state.end() if state else {})
            raise RetryError(f"the mirror stands at {at}, before what the jobs have read: is its stream running?")
        time.sleep(1)


def marks_of(settings: Settings, generation: Generation, since: int) -> list[Mark]:
    """Return where a job's watermark for late rows rose, as far as it matters for results that close after `since`."""
    with writing(settings.registry_url) as connection:
        newest = progress.newest(connection, generation.job_id)
        rises = progress.rises(connection, generation.job_id, since)
    marks = [(p, 0, NEVER_READ) for p, offset in generation.start.items() if offset]
    marks += [(p, offset, 0) for p, offset in generation.start.items()]
    marks += [(p, batch.start.get(p, 0), batch.late_watermark) for batch in rises for p in batch.end]
    if newest is not None:
        # What it has not read yet it will read with this watermark, or a later one.
        marks += [(p, offset, newest.closing_watermark) for p, offset in newest.end.items()]
    return marks
