"""Which records a job left out as late, by the batches it recorded: Spark's own metric counts partial aggregates.

A record is late when the watermark for late rows of the batch that read it has reached the instant at which its first
result closes (`closes_at`). The watermark never falls, so per partition it is a step function of the offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from rewind.core.pipeline import Pipeline
from rewind.transforms.values.parsing import SRC

CLOSES = "_closes"
NEVER_READ = 2**62
"""Watermark of offsets that are not a job's input at all: whatever stands there is left out."""

Mark = tuple[int, int, int]
"""A partition, an offset, and the watermark for late rows from there on, in milliseconds since 1970."""


def with_closing(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Return parsed records (`results.usable`) with `_closes`: when their first result closes, in milliseconds."""
    return records.withColumn(CLOSES, F.unix_millis(F.expr(pipeline.closes_at)))


def accepted(spark: SparkSession, records: DataFrame, marks: Sequence[Mark]) -> DataFrame:
    """Return the records that a job did not leave out as late, without `_closes`; the arguments are those of `late`."""
    gone = late(spark, records, marks)
    on = (F.col(f"{SRC}.partition") == gone["p"]) & (F.col(f"{SRC}.offset") == gone["o"])
    return records.join(gone, on=on, how="left_anti").drop(CLOSES)


def late(spark: SparkSession, records: DataFrame, marks: Sequence[Mark]) -> DataFrame:
    """Return `p` and `o`, partition and offset, of the records that a job left out as late.

    Args:
        spark: The session.
        records: Parsed records with their closing (`with_closing`).
        marks: Where the job's watermark for late rows rose; before a partition's first one nothing is its input.
    """
    steps = spark.createDataFrame(list(marks), "p int, o long, watermark long")
    places = records.select(
        F.col(f"{SRC}.partition").alias("p"), F.col(f"{SRC}.offset").alias("o"), F.col(CLOSES).alias("closes")
    )
    # A mark counts for the record at its own offset: it comes first, and the highest of several last.
    both = (
        steps.withColumn("closes", F.lit(None).cast("long"))
        .withColumn("mark", F.lit(0))
        .unionByName(places.withColumn("watermark", F.lit(None).cast("long")).withColumn("mark", F.lit(1)))
    )
    order = Window.partitionBy("p").orderBy("o", "mark", F.col("watermark").asc_nulls_last())
    stepped = both.withColumn("at", F.last("watermark", ignorenulls=True).over(order)).where(F.col("mark") == 1)
    return stepped.where(F.coalesce("at", F.lit(NEVER_READ)) >= F.col("closes")).select("p", "o")
