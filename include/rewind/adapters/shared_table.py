"""A shared output in Delta: one row a key, merged by version.

A row is deleted when `_tombstone` says so; it stays, since its version must be known to hold off older ones.
"""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from rewind.adapters import delta_output
from rewind.adapters.delta_output import HEADERS, KEY, TOMBSTONE
from rewind.core.offsets import Vector
from rewind.registry.publications import Counts
from rewind.transforms.values.quoting import structure

VERSION = "_version"


def create(spark: SparkSession, path: str, output_schema: str) -> str:
    """Create a shared table unless it is there, and return its id."""
    beside = f"{TOMBSTONE} BOOLEAN, {KEY} BINARY, {VERSION} STRING, {HEADERS} MAP<STRING, STRING>"
    return delta_output.created(spark, path, f"{output_schema}, {beside}")


class SharedTable:
    """One shared table."""

    def __init__(self, spark: SparkSession, path: str, schema: StructType) -> None:
        """Keep the parts.

        Args:
            spark: The session.
            path: Path of the table.
            schema: Its typed columns.
        """
        self._spark = spark
        self._path = path
        self._schema = schema

    def held(self) -> DataFrame:
        """Return the versioned rows that it has, one a key."""
        rows = self._spark.read.format("delta").load(self._path)
        return rows.select(
            F.col(KEY).alias("key"),
            F.col(VERSION).alias("version"),
            F.when(~F.col(TOMBSTONE), structure(self._schema.names)).alias("content"),
            delta_output.header_pairs().alias("headers"),
        )

    def place(self) -> Vector:
        """Return nothing: a table can tell by its rows what came last."""
        return {}

    def merge(self, rows: DataFrame, since: Vector | None) -> Counts:  # noqa: ARG002 - of a topic
        """Merge versioned rows, one a key, in one commit: a newer version takes the place of an older one, never less.

        Args:
            rows: The rows.
            since: Of no use here.
        """
        kept = self._columns(rows).persist(StorageLevel.DISK_ONLY)
        total = kept.count()
        if not total:
            kept.unpersist()
            return Counts()
        written = self._merged(kept)
        stale = self._newer_than(kept) if written < total else 0
        kept.unpersist()
        return Counts(written=written, repeated=total - written - stale, stale=stale)

    def _columns(self, rows: DataFrame) -> DataFrame:
        return rows.select(
            *(F.col("content")[name].alias(name) for name in self._schema.names),
            F.col("content").isNull().alias(TOMBSTONE),
            F.col("key").alias(KEY),
            F.col("version").alias(VERSION),
            delta_output.header_map().alias(HEADERS),
        )

    def _merged(self, rows: DataFrame) -> int:
        table = DeltaTable.forPath(self._spark, self._path)
        same, newer = f"held.{KEY} = new.{KEY}", f"new.{VERSION} > held.{VERSION}"
        merging_in = table.alias("held").merge(rows.alias("new"), same)
        done = merging_in.whenMatchedUpdateAll(condition=newer).whenNotMatchedInsertAll().execute().first()
        assert done is not None
        return int(done["num_affected_rows"])

    def _newer_than(self, rows: DataFrame) -> int:
        held = self.held().select(F.col("key").alias(KEY), F.col("version").alias("held"))
        return rows.join(held, on=KEY, how="inner").where(F.col("held") > F.col(VERSION)).count()
