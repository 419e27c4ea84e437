"""Training run for the class-data archive: touches the classes that the jobs load.

Started by set-up as `spark-submit train_archive.py FOLDER`, with the class path and options of a job. It says how far
it is. With `--prove` it does nothing: the JVM that runs it compares an archive with its class path before all else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMA = "event_id string, visit_id long, event_time timestamp, page string"
NO_BROKER = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "1000"}
IMPATIENT = {
    "kafka.request.timeout.ms": "1000",
    "kafka.default.api.timeout.ms": "1000",
    "kafka.session.timeout.ms": "900",
}


def main(arguments: list[str]) -> None:
    """Run the training, or with `--prove` nothing."""
    if arguments[0] == "--prove":
        return
    spark = SparkSession.builder.getOrCreate()
    train(spark, Path(arguments[0]))
    spark.stop()
    at(6, "writing the archive")


def train(spark: SparkSession, folder: Path) -> None:
    """Write, stream, convert and compare a few rows, and knock at a broker that is not there."""
    mirror, copy = str(folder / "mirror"), str(folder / "copy")
    at(1, "writing Delta")
    for _ in range(2):
        records(spark).write.format("delta").mode("append").partitionBy("ingest_date").save(mirror)
    at(2, "streaming")
    stream(spark.readStream.format("delta").load(mirror), folder, copy)
    at(3, "comparing")
    compare(spark.read.format("delta").load(mirror), spark.read.format("delta").load(copy))
    at(4, "reading Kafka")
    expect_no_broker(
        lambda: spark.read.format("kafka").options(**NO_BROKER, **IMPATIENT, subscribe="none").load().count()
    )
    at(5, "writing Kafka")
    expect_no_broker(
        lambda: records(spark).select("key", "value").write.format("kafka").options(**NO_BROKER, topic="none").save()
    )


def at(number: int, doing: str) -> None:
    """Say how far the training is, for set-up to show."""
    print(f"TRAINING {number} of 7: {doing}", flush=True)


def records(spark: SparkSession) -> DataFrame:
    """Return a few records in the shape of a mirror."""
    return spark.range(200).select(
        f.current_date().alias("ingest_date"),
        (f.col("id") % 2).cast("int").alias("partition"),
        f.col("id").alias("offset"),
        f.current_timestamp().alias("timestamp"),
        f.col("id").cast("string").cast("binary").alias("key"),
        f.to_json(f.struct(f.col("id").alias("visit_id"), f.lit("home").alias("page"))).cast("binary").alias("value"),
    )


def stream(mirror: DataFrame, folder: Path, target: str) -> None:
    """Convert the mirror as a stream job does, through `foreachBatch` and a checkpoint."""

    def write(batch: DataFrame, number: int) -> None:
        options = {"txnAppId": "training", "txnVersion": str(number)}
        convert(batch).write.format("delta").mode("append").options(**options).save(target)

    checkpoint = str(folder / "checkpoint")
    query = mirror.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query.start().awaitTermination()


def convert(rows: DataFrame) -> DataFrame:
    """Parse and print JSON with the native functions."""
    parsed = rows.withColumn("row", f.from_json(f.col("value").cast("string"), SCHEMA)).where("row is not null")
    ordered = parsed.sortWithinPartitions("partition", "offset")
    return ordered.select("partition", "offset", "key", f.to_json("row").cast("binary").alias("value"))


def compare(left: DataFrame, right: DataFrame) -> None:
    """Join and aggregate two outputs as a validation does."""
    joined = left.alias("l").join(right.alias("r"), on=["partition", "offset"], how="full_outer")
    classes = joined.groupBy("partition").agg(f.count("*"), f.max("offset"), f.expr("bit_xor(xxhash64(l.value))"))
    classes.collect()


def expect_no_broker(action: object) -> None:
    """Load Kafka's classes by an action that fails, because nothing listens where it looks."""
    try:
        action()  # type: ignore[operator]
    except PySparkException:
        return
    except Exception as error:
        if "kafka" not in str(error).lower():
            raise


if __name__ == "__main__":
    main(sys.argv[1:])
