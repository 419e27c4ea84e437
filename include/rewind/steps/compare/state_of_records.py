"""The state that a logic makes of a few records by themselves."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rewind.adapters import feed, state_store
from rewind.core.pipeline import Pipeline
from rewind.steps.generation.logic import load_logic
from rewind.transforms.records import results

FIRST = 0
"""The first batch of a query: its watermark is 0, so it leaves nothing out and closes nothing."""


def made(spark: SparkSession, pipeline: Pipeline, records: DataFrame, partitions: int, folder: Path) -> str:
    """Run a logic on records as one batch, and return the view of its state after it (`state_store.view`).

    Args:
        spark: A session for queries with state (`session.beside`).
        pipeline: Whose logic.
        records: Source records.
        partitions: Partitions of the state.
        folder: For the records, the checkpoint and the view; executors see it too.
    """
    table, place = str(folder / "feed"), str(folder / "checkpoint")
    feed.create(spark, table)
    feed.append(records, table, folder.name, FIRST)
    rows = load_logic(pipeline)(results.usable(feed.stream(spark).load(table), pipeline))
    writer = rows.writeStream.outputMode(pipeline.output_mode).option("checkpointLocation", place)
    writer.foreachBatch(_discard).trigger(availableNow=True).start().awaitTermination()
    return state_store.view(place, FIRST, partitions, folder / "view")


def _discard(rows: DataFrame, _number: int) -> None:
    rows.write.format("noop").mode("overwrite").save()
