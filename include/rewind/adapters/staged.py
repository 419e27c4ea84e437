"""What a job has written into its own output and has yet to be published: the staging of a shared output."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from rewind.adapters import delta_output, kafka
from rewind.adapters.shared_topic import versioned
from rewind.core import coordinates
from rewind.core.errors import RefusedError
from rewind.core.horizon import first_unread
from rewind.core.model import Generation
from rewind.core.offsets import Vector
from rewind.core.pipeline import DELTA, Pipeline
from rewind.core.settings import Settings
from rewind.registry.publications import Publication
from rewind.runtime import tables
from rewind.runtime.kafka.broker import Broker
from rewind.transforms.records.merging import VERSIONED
from rewind.transforms.values import parsing


@dataclass(frozen=True)
class Staged:
    """What was read of a job's own output.

    Attributes:
        rows: Versioned rows that were not published yet, up to a batch, as the job wrote them.
        keys: `key` of all rows that were read, of later batches too.
        unread: From where on it has to be read for the batches after that.
        whole: Whether nothing was ever taken from the output.
        read: All that was read; cached until `close` where it is read more than once.
    """

    rows: DataFrame
    keys: DataFrame
    unread: Vector
    whole: bool
    read: DataFrame

    def close(self) -> None:
        """Give back what was cached."""
        self.read.unpersist()


def read(
    spark: SparkSession,
    settings: Settings,
    generation: Generation,
    pipeline: Pipeline,
    published: Publication,
    through: int,
) -> Staged:
    """Return what a job has written since what it published, up to a batch.

    Raises:
        RefusedError: Its output is gone.
        IntegrityError: It ends before what was read of it.
    """
    kind = _of_table if pipeline.output_format == DELTA else _of_topic
    return kind(spark, settings, generation, published, through)


def _of_topic(
    spark: SparkSession, settings: Settings, generation: Generation, published: Publication, through: int
) -> Staged:
    topic = Broker(settings).topic(generation.output_topic)
    if topic is None:
        raise RefusedError("output.topic", f"{generation.output_topic} is gone", "Restore it, or rewind with same_code")
    start = first_unread(topic, {topic.id: published.staged})
    read = kafka.read_range(spark, settings, topic.name, start, topic.latest, "read_committed")
    rows = versioned(read).persist(StorageLevel.DISK_ONLY)
    later = F.col("version") >= coordinates.version(generation.epoch, through + 1)
    # The stream writes on: what belongs to a later batch is read again for that. One row a partition.
    first = {
        row["partition"]: row["first"]
        for row in rows.where(later).groupBy("partition").agg(F.min("offset").alias("first")).collect()
    }
    unread = {p: first.get(p, end) for p, end in topic.latest.items()}
    mine = rows.where(~later).select(*VERSIONED)
    return Staged(mine, rows.select("key"), unread, not any(topic.earliest.values()), rows)


def _of_table(
    spark: SparkSession, settings: Settings, generation: Generation, published: Publication, through: int
) -> Staged:
    name = generation.output_topic
    if tables.id_of(settings, name) is None:
        raise RefusedError("output.table", f"{name} is gone", "Restore it, or rewind with same_code")
    schema = parsing.declared(generation.output_schema)
    # The number of a write is its batch, here where one query makes them all.
    first = 0 if published.batch is None else published.batch + 1
    rows = delta_output.read_versioned(spark, str(tables.path(settings, name)), first, through + 1, schema)
    return Staged(rows, rows.select("key"), {}, True, rows)
