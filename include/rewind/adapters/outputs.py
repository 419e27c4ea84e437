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
    isolation = thaw(generation.frozen["config"]).isolation
    pairs = ((generation.output_topic, outputs.ROW), (generation.dead_letter_topic, outputs.DEAD))
    frames = [
        outputs.located(kafka.read_whole(spark, settings, _topic(settings, n), isolation), kind, generation.topic_id)
        for n, kind in pairs
    ]
    return frames[0].unionByName(frames[1])


def first_whole(spark: SparkSession, settings: Settings, generation: Generation) -> Vector:
    """Return the first source offset that is still whole in a generation's output, per partition.

    Empty when nothing was ever taken from the output: then the generation's own start counts.
    """
    topic = _topic(settings, generation.output_topic)
    if not any(topic.earliest.values()):
        return {}
    isolation = thaw(generation.frozen["config"]).isolation
    rows = outputs.located(kafka.read_whole(spark, settings, topic, isolation), outputs.ROW, generation.topic_id)
    # One row a source partition.
    return {row["p"]: row["first"] for row in outputs.first_whole(rows).collect()}


def _topic(settings: Settings, name: str) -> Topic:
    found = Broker(settings).topic(name)
    if found is None:
        raise RefusedError("output.topic", f"{name} is gone", "Restore it, or deploy the pipeline anew")
    return found
