"""One more commit of a mirror's table whose log is long, beside one whose log is short."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import rounds
from benchmarks.places import JARS, WORK
from benchmarks.rounds import Ratio, Spent
from rewind.adapters import delta_log, mirror
from rewind.core.settings import from_environment
from rewind.runtime.drivers import jvm, submit

SHORT, LONG, QUICK_LONG = 1_000, 100_000, 20_000
COMMITS = 5
"""Commits a round."""


def measure(quick: bool) -> list[Ratio]:
    """Return the time of a commit to a long log as a multiple of one to a short log."""
    WORK.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=WORK))
    spark = session(folder)
    try:
        lengths = {"short": SHORT, "long": QUICK_LONG if quick else LONG}
        sides = {name: table(spark, folder / name, length) for name, length in lengths.items()}
        taken = rounds.interleaved(sides, 2 if quick else 5)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return [rounds.ratio(f"commit_at_{lengths['long']}_to_{SHORT}", taken, "long", "short")]


def table(spark: SparkSession, folder: Path, length: int) -> Callable[[], Spent]:
    """Make a mirror's table whose log has so many commits, and return what adds some more."""
    path = str(folder)
    mirror.create(spark, path)
    commit = {"commitInfo": {"timestamp": int(time.time() * 1000), "operation": "WRITE", "operationParameters": {}}}
    for version in range(1, length):
        (folder / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(commit) + "\n")
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    log.checkpoint()
    rows, made = records(spark), [0]

    def add() -> None:
        for _ in range(COMMITS):
            made[0] += 1
            mirror.append(rows, path, "topic", "2025-09-04", application="bench", batch=made[0], metadata="{}")
            last = length - 2 + made[0]
            if delta_log.versions(spark, path, last) != [last + 1]:
                raise RuntimeError(f"{path}: no version {last + 1}")

    return lambda: rounds.of_call(add)


def records(spark: SparkSession) -> DataFrame:
    """Return ten records as the mirror takes them."""
    return spark.range(10, numPartitions=1).select(
        F.lit(0).alias("partition"),
        F.col("id").alias("offset"),
        F.current_timestamp().alias("timestamp"),
        F.lit(0).alias("timestamp_type"),
        F.lit("topic").alias("topic"),
        F.lit(None).cast("binary").alias("key"),
        F.lit(b"{}").alias("value"),
        F.array().cast("array<struct<key:string,value:binary>>").alias("headers"),
    )


def session(folder: Path) -> SparkSession:
    """Return a session with the settings of a mirror's driver."""
    settings = from_environment(
        {"REWIND_HOME": str(folder), "REWIND_JARS": str(JARS), "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    )
    builder = SparkSession.builder.master("local[2]")
    builder = builder.config("spark.driver.extraClassPath", jvm.spark_class_path(JARS))
    for name, value in submit.usual_conf(settings, "mirror").items():
        builder = builder.config(name, value)
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
