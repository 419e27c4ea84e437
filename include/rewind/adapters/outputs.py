"""The output of a generation as it is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output, kafka
from rewind.core.errors import RefusedError
from rewind.core.horizon import first_unread
from rewind.core.model import Generation, Topic
from rewind.core.offsets import Vector
from rewind.core.pipeline import DELTA
from rewind.core.settings import Settings
from rewind.runtime import tables
from rewind.runtime.kafka.broker import Broker
from rewind.transforms.comparing import keyed
from rewind.transforms.records import outputs
from rewind.transforms.values import parsing


@dataclass(frozen=True)
class Output:
    """What was read of a generation.

    Attributes:
        topics: Its output and its dead-letter topic, as they were described; nothing after their ends was read.
        rows: Their located rows (`outputs.located`).
    """

    topics: tuple[Topic, Topic]
    rows: DataFrame

    @property
    def ends(self) -> dict[str, Vector]:
        """The offset after the last one that was read, by topic (`Frontier.ends`)."""
        return ends_of(self.topics)

    def unread(self, beyond: Mapping[int, int]) -> dict[str, Vector]:
        """Return from where on the topics have to be read for what lies beyond a horizon (`Frontier.unread`).

        Args:
            beyond: First offset of a row beyond the horizon, by place (`outputs.place`), among those that were read.
        """
        return {
            topic.id: {p: min(end, beyond.get(outputs.place(p, dead), end)) for p, end in topic.latest.items()}
            for dead, topic in enumerate(self.topics)
        }


def ends_of(topics: Iterable[Topic]) -> dict[str, Vector]:
    """Return the ends of topics as they were described, by id."""
    return {topic.id: dict(topic.latest) for topic in topics}


def newer(topic: Topic, ends: Mapping[str, Vector]) -> Column:
    """Return whether a row was written after its topic was read up to `Frontier.ends`; of one not read, none was."""
    if (known := ends.get(topic.id)) is None:
        return F.lit(False)
    parts = [(F.col("out_partition") == p) & (F.col("out_offset") >= known.get(p, 0)) for p in topic.latest]
    return reduce(Column.__or__, parts, F.lit(False))


def read(
    spark: SparkSession, settings: Settings, generation: Generation, unread: Mapping[str, Vector] | None = None
) -> Output:
    """Return a generation's output and dead letters as of now, or only what a frontier names as unread.

    Raises:
        IntegrityError: A topic ends before what was read of it.
    """
    names = ((generation.output_topic, outputs.ROW), (generation.dead_letter_topic, outputs.DEAD))
    rows, dead = (_located(spark, settings, generation, name, kind, unread or {}) for name, kind in names)
    return Output((rows[0], dead[0]), rows[1].unionByName(dead[1]))


def read_rows(spark: SparkSession, settings: Settings, generation: Generation) -> tuple[Topic, DataFrame]:
    """Return a generation's output topic as it is now, and the located rows that it holds."""
    return _located(spark, settings, generation, generation.output_topic, outputs.ROW, {})


def read_keyed(
    spark: SparkSession, settings: Settings, generation: Generation, unread: Mapping[str, Vector] | None = None
) -> tuple[Topic, DataFrame]:
    """Return the output topic of a stateful generation as it is now, and its results (`keyed.located`), unread ones."""
    pipeline = generation.declared
    topic, rows = _rows(spark, settings, generation, generation.output_topic, unread or {})
    return topic, keyed.located(rows, generation.topic_id, pipeline.result_starts, pipeline.result_ends)


def read_dead(
    spark: SparkSession, settings: Settings, generation: Generation, unread: Mapping[str, Vector] | None = None
) -> tuple[Topic, DataFrame]:
    """Return the dead-letter topic of a generation as it is now, and its located rows, unread ones."""
    return _located(spark, settings, generation, generation.dead_letter_topic, outputs.DEAD, unread or {})


def first_whole(
    spark: SparkSession, settings: Settings, generation: Generation, unread: Mapping[str, Vector] | None = None
) -> Vector:
    """Return the first source offset that is still whole in a generation's output, per partition.

    Empty when nothing was ever taken from the output, or from what a frontier names as unread of it: then the
    generation's own start counts.
    """
    topic, rows = read_rows(spark, settings, generation)
    known = (unread or {}).get(topic.id, {})
    if all(offset <= known.get(p, 0) for p, offset in topic.earliest.items()):
        return {}
    # One row a source partition.
    return {row["p"]: row["first"] for row in outputs.first_whole(rows).collect()}


def _located(
    spark: SparkSession,
    settings: Settings,
    generation: Generation,
    name: str,
    kind: str,
    unread: Mapping[str, Vector],
) -> tuple[Topic, DataFrame]:
    topic, rows = _rows(spark, settings, generation, name, unread)
    return topic, outputs.located(rows, kind, generation.topic_id)


def _rows(
    spark: SparkSession, settings: Settings, generation: Generation, name: str, unread: Mapping[str, Vector]
) -> tuple[Topic, DataFrame]:
    pipeline = generation.declared
    if pipeline.output_format == DELTA:
        return _table(spark, settings, generation, name, unread)
    topic, isolation = _topic(settings, name), pipeline.isolation
    return topic, kafka.read_range(spark, settings, name, first_unread(topic, unread), topic.latest, isolation)


def _table(
    spark: SparkSession, settings: Settings, generation: Generation, name: str, unread: Mapping[str, Vector]
) -> tuple[Topic, DataFrame]:
    table_id, path = tables.id_of(settings, name), str(tables.path(settings, name))
    if table_id is None:
        raise RefusedError("output.table", f"{name} is gone", "Restore it, or deploy the pipeline again")
    topic = delta_output.as_topic(spark, path, name, table_id)
    dead = name == generation.dead_letter_topic
    schema = None if dead else parsing.declared(generation.output_schema)
    start = first_unread(topic, unread)
    return topic, delta_output.read(spark, path, start[0], topic.latest[0], schema)


def _topic(settings: Settings, name: str) -> Topic:
    found = Broker(settings).topic(name)
    if found is None:
        raise RefusedError("output.topic", f"{name} is gone", "Restore it, or deploy the pipeline again")
    return found
