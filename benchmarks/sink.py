"""How much faster the tuned Kafka sink is than Spark's default, side by side: `python benchmarks/sink.py`.

Five rounds of both, interleaved, the first dropped; prints records per second and the ratio, median of rounds.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import kafka
from rewind.core.model import Topic
from rewind.core.settings import Settings, from_environment
from rewind.local import broker as local_broker
from rewind.runtime.drivers import jvm
from rewind.runtime.kafka.broker import Broker

RECORDS, ROUNDS = 300_000, 5
PROJECT = Path(__file__).resolve().parents[1]


def main() -> None:
    jars = Path(os.environ.get("REWIND_JARS") or PROJECT / ".rewind" / "jars")
    with tempfile.TemporaryDirectory() as folder:
        running = local_broker.start(Path(folder), jars=jars)
        try:
            environment = {"REWIND_HOME": folder, "REWIND_KAFKA_BOOTSTRAP": running.bootstrap, "REWIND_JARS": str(jars)}
            measure(from_environment(environment))
        finally:
            running.kill()


def measure(settings: Settings) -> None:
    spark = session(settings.jars)
    Broker(settings).create_topic("out", Topic("", "", {}, {}), partitions=2, cleanup="delete")
    rows = records(spark).persist()
    rows.count()
    seconds: dict[str, list[float]] = {"default": [], "tuned": []}
    for _ in range(ROUNDS):
        seconds["default"].append(timed(lambda: default_sink(rows, settings)))
        seconds["tuned"].append(timed(lambda: kafka.write(rows, settings, {})))
    warm = {name: statistics.median(runs[1:]) for name, runs in seconds.items()}
    for name, median in warm.items():
        print(f"{name:8} {RECORDS / median:10,.0f} records/s warm, {RECORDS / seconds[name][0]:10,.0f} cold")
    print(f"ratio    {warm['default'] / warm['tuned']:.2f}")
    spark.stop()


def default_sink(rows: DataFrame, settings: Settings) -> None:
    rows.write.format("kafka").option("kafka.bootstrap.servers", settings.bootstrap).save()


def timed(call: object) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def records(spark: SparkSession) -> DataFrame:
    value = F.concat(
        F.lit('{"event_id":"'), F.col("id").cast("string"), F.lit('","page":"'), F.lit("x" * 80), F.lit('"}')
    )
    header = F.struct(F.lit("rewind-source").alias("key"), F.col("id").cast("string").cast("binary").alias("value"))
    return spark.range(RECORDS, numPartitions=2).select(
        F.lit("out").alias("topic"),
        F.col("id").cast("string").cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.array(header).alias("headers"),
    )


def session(jars: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraClassPath", jvm.spark_class_path(jars))
    return builder.config("spark.log.level", "ERROR").getOrCreate()


if __name__ == "__main__":
    main()
