"""A shared output in Kafka: the last record of every key is its newest version, and null is a tombstone."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from rewind.adapters import kafka
from rewind.core.errors import RefusedError
from rewind.core.horizon import first_unread
from rewind.core.model import Topic
from rewind.core.offsets import Vector
from rewind.core.settings import Settings
from rewind.registry.publications import Counts
from rewind.runtime.kafka.broker import Broker
from rewind.transforms.records import merging
from rewind.transforms.records.merging import REPEATED, STALE, VERSIONED, WRITTEN

ISOLATION = "read_committed"


def versioned(rows: DataFrame) -> DataFrame:
    """Return rows of the Kafka source as versioned rows, with `partition` and `offset`; what has no version is none."""
    read = rows.select(
        "key",
        merging.version().alias("version"),
        F.col("value").alias("content"),
        "headers",
        "partition",
        "offset",
    )
    return read.where(F.col("version").isNotNull())


class SharedTopic:
    """One shared topic."""

    def __init__(self, spark: SparkSession, settings: Settings, name: str) -> None:
        """Keep the parts.

        Args:
            spark: The session.
            settings: The installation.
            name: The topic.
        """
        self._spark = spark
        self._settings = settings
        self._name = name

    def held(self) -> DataFrame:
        """Return the versioned rows that it has, the newest of each key."""
        return merging.newest(self._read(self._topic(), {}))

    def place(self) -> Vector:
        """Return where it ends now."""
        return self._topic().latest

    def merge(self, rows: DataFrame, since: Vector | None) -> Counts:
        """Send those of the versioned rows, one a key, that are newer than what the topic has of their key.

        Args:
            rows: The rows.
            since: From where on the topic is read for what it has; None for all of it. What lies before is older than
                all the rows.
        """
        topic = self._topic()
        held = merging.newest(self._read(topic, since or {}))
        fates = merging.with_fate(rows, held).persist(StorageLevel.DISK_ONLY)
        # One row a fate.
        found = {row["fate"]: row["count"] for row in fates.groupBy("fate").count().collect()}
        if WRITTEN in found:
            sent = fates.where(F.col("fate") == WRITTEN).withColumn("topic", F.lit(self._name))
            rows = sent.select("topic", "key", F.col("content").alias("value"), "headers")
            kafka.write(rows, self._settings, topic.config)
        fates.unpersist()
        return Counts(written=found.get(WRITTEN, 0), repeated=found.get(REPEATED, 0), stale=found.get(STALE, 0))

    def _read(self, topic: Topic, since: Vector) -> DataFrame:
        start = first_unread(topic, {topic.id: since})
        read = kafka.read_range(self._spark, self._settings, self._name, start, topic.latest, ISOLATION)
        return versioned(read).select(*VERSIONED)

    def _topic(self) -> Topic:
        found = Broker(self._settings).topic(self._name)
        if found is None:
            raise RefusedError(
                "output.shared", f"{self._name} is gone", "Restore it, or declare another pipeline and deploy that"
            )
        return found
