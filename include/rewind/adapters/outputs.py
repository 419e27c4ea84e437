"""The output of a generation as it is compared."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from rewind.adapters import kafka
from rewind.control.broker import Broker
from rewind.core.errors import RefusedError
from rewind.core.offsets import Vector
from rewind.core.pipeline import thaw
from rewind.core.settings import Settings
from rewind.core.world import Generation, Topic
from rewind.transforms import outputs


def read(spark: SparkSession, settings: Settings, generation: Generation) -> DataFrame:
    """Return the located rows (`outputs.located`) of a generation's output and dead-letter topics, as of now."""
    _, rows = read_rows(spark, settings, generation)
    return rows.unionByName(_located(spark, settings, generation, generation.dead_letter_topic, outputs.DEAD)[1])


def read_rows(spark: SparkSession, settings: Settings, generation: Generation) -> tuple[Topic, DataFrame]:
    """Return a generation's output topic as it is now, and the located rows that it holds."""
    return _located(spark, settings, generation, generation.output_topic, outputs.ROW)


def first_whole(spark: SparkSession, settings: Settings, generation: Generation) -> Vector:
    """Return the first source offset that is still whole in a generation's output, per partition.

    Empty when nothing was ever taken from the output: then the generation's own start counts.
    """
    topic, rows = read_rows(spark, settings, generation)
    if not any(topic.earliest.values()):
        return {}
    # One row a source partition.
    return {row["p"]: row["first"] for row in outputs.first_whole(rows).collect()}


def _located(
    spark: SparkSession, settings: Settings, generation: Generation, name: str, kind: str
) -> tuple[Topic, DataFrame]:
    topic, isolation = _topic(settings, name), thaw(generation.frozen["config"]).isolation
    return topic, outputs.located(kafka.read_whole(spark, settings, topic, isolation), kind, generation.topic_id)


def _topic(settings: Settings, name: str) -> Topic:
    found = Broker(settings).topic(name)
    if found is None:
        raise RefusedError("output.topic", f"{name} is gone", "Restore it, or deploy the pipeline anew")
    return found
