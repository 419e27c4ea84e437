"""Make the results that a repair touches anew, from all their records at once: nothing is late, nothing is cut off."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from rewind.adapters.delta_output import Write
from rewind.adapters.sinks import sink_of
from rewind.core.crash import side_effect
from rewind.core.model import Generation
from rewind.core.offsets import Ranges
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.runtime.drivers.guard import Guard
from rewind.steps.generation.logic import empty_records, load_logic, stamp_of
from rewind.transforms.comparing import lateness
from rewind.transforms.logic import contract
from rewind.transforms.records import results


def write(
    spark: SparkSession,
    settings: Settings,
    staging: Generation,
    pipeline: Pipeline,
    guard: Guard,
    records: DataFrame,
    touches: tuple[int, int],
    batch: int,
    ranges: Ranges,
) -> None:
    """Write the touched results into a repair's staging.

    Args:
        spark: The session.
        settings: The installation.
        staging: The repair.
        pipeline: Its pipeline.
        guard: Its lease.
        records: Source records, each once.
        touches: The event time whose results are made, `[from, to)` in milliseconds since 1970.
        batch: Newest batch of the job that is repaired: the versions are newer than it.
        ranges: Source offsets of the records.
    """
    logic = load_logic(pipeline)
    made = contract.examine(logic, pipeline, empty_records(spark))
    rows = logic(_near(results.usable(records, pipeline), pipeline, touches)).persist(StorageLevel.DISK_ONLY)
    # Kept first: Spark 4.2 pushes a condition on a session's start below the merge of sessions, and cuts them off.
    starts, ends = (F.unix_millis(name) for name in (pipeline.result_starts, pipeline.result_ends))
    wanted = rows.where((starts < touches[1]) & (ends > touches[0]))
    guard.check()
    encoded = results.encode(wanted, pipeline, made, stamp_of(staging, guard.token), batch)
    with side_effect("repair.write"):
        sink_of(settings, staging, pipeline).write(encoded, Write(f"{staging.job_id}-backfill", 0, 0, ranges))
    rows.unpersist()


def _near(records: DataFrame, pipeline: Pipeline, touches: tuple[int, int]) -> DataFrame:
    """Return the records that can be of a touched result: within a horizon of it."""
    margin = pipeline.horizon_milliseconds
    if margin is None:
        return records
    timed = lateness.with_closing(records, pipeline)
    return timed.where(F.col(lateness.CLOSES).between(touches[0] - margin, touches[1] + margin)).drop(lateness.CLOSES)
