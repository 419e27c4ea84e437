"""What Delta itself writes when somebody restores, empties or rewrites a table, and that the writer stops before it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import delta_output, mirror, table_watch
from rewind.adapters.delta_output import Write
from rewind.adapters.sinks import DeltaSink
from rewind.core.errors import QuarantineError
from rewind.core.offsets import OffsetRange
from rewind.core.settings import Settings
from rewind.runtime import tables
from rewind.steps.base import failures
from tests.support import fakes

pytestmark = pytest.mark.full

JOB = fakes.generation()
APP = f"{JOB.job_id}-stream-q1"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return fakes.installation(tmp_path / "home")


def rows(spark: SparkSession, number: int) -> DataFrame:
    """Return the encoded rows of ten source offsets."""
    headers = F.array(F.struct(F.lit("rewind-job").alias("key"), F.lit(b"g1").alias("value")))
    return spark.range(number * 10, number * 10 + 10).select(
        F.lit(JOB.output_topic).alias("topic"),
        F.lit(b"k").alias("key"),
        F.lit(b"{}").alias("value"),
        headers.alias("headers"),
        F.struct(F.col("id").alias("n")).alias("fields"),
    )


def made(number: int) -> Write:
    return Write(APP, number, number, {0: OffsetRange(number * 10, number * 10 + 10)})


def test_no_write_id_of_a_table_that_somebody_changed_is_believed(spark: SparkSession, settings: Settings) -> None:
    path = str(tables.path(settings, JOB.output_topic))
    tables.mark(settings, JOB.output_topic, delta_output.create(spark, path, "n BIGINT"))
    dead = str(tables.path(settings, JOB.dead_letter_topic))
    tables.mark(settings, JOB.dead_letter_topic, delta_output.create_dead(spark, dead))
    table = f"delta.`{path}`"

    def count() -> int:
        return spark.read.format("delta").load(path).count()

    def newest() -> int:
        return max(int(file.stem) for file in Path(path, "_delta_log").glob("*.json"))

    def write(number: int) -> None:
        DeltaSink(settings, JOB).write(rows(spark, number), made(number))

    write(0)
    write(1)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")
    # What it is about: Delta keeps the write id, and leaves the rows out without a word.
    delta_output.write(rows(spark, 1), path, made(1))
    assert count() == 10
    with pytest.raises(
        QuarantineError, match=r"RESTORE to version 1 at version 3 .* RESTORE it to version 2, or rewind"
    ):
        write(1)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 2")
    write(1)
    write(2)
    assert count() == 30

    for statement, operation in (
        (f"DELETE FROM {table} WHERE n = 3", "DELETE"),
        (f"UPDATE {table} SET n = 0 WHERE n = 4", "UPDATE"),
        (f"TRUNCATE TABLE {table}", "TRUNCATE"),
        (f"INSERT OVERWRITE {table} SELECT * FROM {table} WHERE n = 5", "WRITE"),
    ):
        whole = newest()
        spark.sql(statement)
        with pytest.raises(
            QuarantineError, match=f"{operation} at version {whole + 1} .* to version {whole}, or rewind"
        ):
            write(3)
        spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {whole}")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')")
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE n = 5")
    write(3)
    assert count() == 41


def test_what_a_batch_raises_is_the_same_error_after_the_jvm(spark: SparkSession, settings: Settings) -> None:
    path = str(settings.tables / "source")
    spark.range(1).write.format("delta").save(path)

    def batch(_rows: DataFrame, _number: int) -> None:
        raise QuarantineError("out-g1: RESTORE to version 1, and more: RESTORE it to version 2")

    query = spark.readStream.format("delta").load(path).writeStream.foreachBatch(batch)
    running = query.option("checkpointLocation", f"{path}-checkpoint").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException) as thrown:
        running.awaitTermination()
    error = failures.typed(thrown.value)
    assert (type(error), str(error)) == (
        QuarantineError,
        "out-g1: RESTORE to version 1, and more: RESTORE it to version 2",
    )


def test_the_maintenance_of_a_mirror_is_no_change_of_it(spark: SparkSession, settings: Settings) -> None:
    path = mirror.table_path(settings, fakes.TOPIC)
    mirror.create(spark, path)
    for number in range(2):
        records = spark.range(number * 5, number * 5 + 5).select(
            F.lit(0).alias("partition"),
            F.col("id").alias("offset"),
            F.timestamp_seconds("id").alias("timestamp"),
            F.lit(0).alias("timestamp_type"),
            F.lit(fakes.TOPIC).alias("topic"),
            F.lit(b"k").alias("key"),
            F.lit(b"v").alias("value"),
            F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        )
        mirror.append(
            records,
            path,
            fakes.TOPIC_ID,
            "2025-09-04",
            application=f"mirror-{fakes.TOPIC_ID}-q",
            batch=number,
            metadata='{"ranges": {}}',
        )
    mirror.compact(spark, path, "2025-09-04", 100)
    mirror.vacuum(spark, path, 1000)
    looking = table_watch.of_mirror(settings, "mirror-visits", path)
    looking.look(spark)
    assert looking.changes == []
    spark.sql(f"DELETE FROM delta.`{path}` WHERE offset IN (3, 4)")
    looking.look(spark)
    assert [(c.operation, c.kind, c.rows) for c in looking.changes] == [("DELETE", "removed", 2)]
