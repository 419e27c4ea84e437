"""Kafka through Spark: the source, the sink, and outputs as they are compared."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

from rewind.core.model import Topic
from rewind.core.offsets import Vector, to_spark_json
from rewind.core.settings import Settings
from rewind.runtime.kafka import kafka_access

# The bundled client is 3.9, whose linger.ms is 0 unless set: 2.8 times as fast so (benchmarks/sink.py).
_SINK_TUNING = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.linger.ms": "20",
    "kafka.batch.size": "262144",
    "kafka.compression.type": "lz4",
}

BUFFER_BYTES = 32 << 20
"""The client's own default."""


def stream_reader(
    spark: SparkSession, settings: Settings, topic: str, start: Vector, isolation: str, max_offsets: int
) -> DataStreamReader:
    """Return a streaming reader of a topic.

    Args:
        spark: The session.
        settings: The installation.
        topic: The topic.
        start: First offset of each partition; counts only for a query's first start.
        isolation: Kafka isolation level.
        max_offsets: Most offsets in one micro-batch.
    """
    options = {
        "subscribe": topic,
        "startingOffsets": to_spark_json(topic, start),
        "maxOffsetsPerTrigger": str(max_offsets),
        "includeHeaders": "true",
        # Never switched off: a lost record must end the query, not become a warning.
        "failOnDataLoss": "true",
        "kafka.isolation.level": isolation,
    }
    return spark.readStream.format("kafka").options(**kafka_access.spark_options(settings), **options)


def read_range(
    spark: SparkSession, settings: Settings, topic: str, start: Vector, end: Vector, isolation: str
) -> DataFrame:
    """Return the records of a topic in `[start, end)`, as the Kafka source gives them."""
    reader: DataFrameReader = spark.read.format("kafka").options(
        **kafka_access.spark_options(settings),
        **{
            "subscribe": topic,
            "startingOffsets": to_spark_json(topic, start),
            "endingOffsets": to_spark_json(topic, end),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafka.isolation.level": isolation,
        },
    )
    return reader.load()


def read_whole(spark: SparkSession, settings: Settings, topic: Topic, isolation: str) -> DataFrame:
    """Return the records that a topic held when it was described."""
    return read_range(spark, settings, topic.name, topic.earliest, topic.latest, isolation)


def write(rows: DataFrame, settings: Settings, config: Mapping[str, str]) -> None:
    """Write sink rows (`encoding.SINK_COLUMNS`) to the topics they name, at least once.

    Args:
        rows: The rows.
        settings: The installation.
        config: Settings of the output topic, for the largest request.
    """
    largest = int(config.get("max.message.bytes", 1_048_588))
    # Headers and framing come on top of a record that was as large as its topic allows.
    request = largest + 65_536
    # A producer refuses a request that its buffer cannot hold.
    limits = {"kafka.max.request.size": str(request), "kafka.buffer.memory": str(max(BUFFER_BYTES, 2 * request))}
    options = {**kafka_access.spark_options(settings), **_SINK_TUNING, **limits}
    rows.write.format("kafka").options(**options).save()


def as_records(kafka: DataFrame) -> DataFrame:
    """Return Kafka rows as source records (`transforms.values.parsing.SOURCE_COLUMNS`) with their timestamp type."""
    headers = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    kept = ["key", "value", "topic", "partition", "offset", "timestamp"]
    return kafka.select(*kept, headers.alias("headers"), F.col("timestampType").alias("timestamp_type"))
