"""Rows that were written after their output was read."""

from __future__ import annotations

from pyspark.sql import SparkSession

from rewind.adapters import outputs
from rewind.core.model import Topic


def test_rows_behind_what_was_read_are_newer_and_of_an_output_that_was_not_read_none(spark: SparkSession) -> None:
    topic = Topic("out", "id", {0: 0, 1: 0}, {0: 3, 1: 3})
    rows = spark.createDataFrame([(p, o) for p in (0, 1) for o in range(3)], "out_partition INT, out_offset BIGINT")

    def newer(ends: dict[str, dict[int, int]]) -> list[tuple[int, int]]:
        return sorted((row[0], row[1]) for row in rows.where(outputs.newer(topic, ends)).collect())

    # A partition that was added since was not read.
    assert newer({"id": {0: 2}}) == [(0, 2), (1, 0), (1, 1), (1, 2)]
    assert newer({"id": {0: 3, 1: 3}}) == []
    assert newer({"other": {0: 0, 1: 0}}) == []
