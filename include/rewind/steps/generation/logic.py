"""A pipeline's logic, and what its job writes beside the rows that it gives."""

from __future__ import annotations

import importlib

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters.session import SOURCE_EVOLUTION
from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.core.pipeline import Pipeline
from rewind.transforms.logic.contract import Logic
from rewind.transforms.records.headers import Stamp


def load_logic(pipeline: Pipeline) -> Logic:
    """Return `transform` of a pipeline's `logic.py`, from wherever Python finds it: a bundle, in a driver.

    Raises:
        RefusedError: There is no such function, or it cannot be imported.
    """
    cure = "Define transform(records: DataFrame) -> DataFrame in logic.py"
    try:
        module = importlib.import_module(f"pipelines.{pipeline.name}.logic")
    except Exception as error:
        raise RefusedError("logic", f"{pipeline.name}/logic.py cannot be imported ({error!r})", cure) from error
    transform = getattr(module, "transform", None)
    if not callable(transform):
        raise RefusedError("logic", f"{pipeline.name}/logic.py has no transform()", cure)
    made: Logic = transform
    return made


def stamp_of(generation: Generation, token: int) -> Stamp:
    """Return what a job writes on each of its rows."""
    _, kind, number = names.parse_job_id(generation.job_id)
    return Stamp(
        job_id=generation.job_id,
        token=token,
        topic_id=generation.topic_id,
        output_topic=generation.output_topic,
        dead_letter_topic=generation.dead_letter_topic,
        repair=number if kind == "r" else 0,
        # A generation of an older release has none, and no state.
        epoch=generation.epoch,
    )


def empty_records(spark: SparkSession) -> DataFrame:
    """Return an empty frame of source records."""
    headers = "array<struct<key:string,value:binary>>"
    columns = (
        f"key binary, value binary, headers {headers}, topic string, partition int, offset bigint, timestamp timestamp"
    )
    return spark.createDataFrame([], columns)


def empty_stream(spark: SparkSession) -> DataFrame:
    """Return a streaming frame of source records, to look at plans: a watermark has no place in that of a batch."""
    fields = empty_records(spark).schema.fields
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in fields)
    reader = spark.readStream.format("rate")
    # Spark wants each source named where sources may change, and none elsewhere.
    if spark.conf.get(SOURCE_EVOLUTION) == "true":
        reader = reader.name("nothing")
    return reader.load().select(*nothing)
