"""What is planted into equal outputs is counted, each in its class and field, and nothing else."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.scenarios import planted, planted_windows

pytestmark = pytest.mark.full


def test_some_of_each_kind_are_counted_exactly(spark: SparkSession) -> None:
    planted.check_each(spark, 3_000, 3)


def test_equal_rows_are_equal(spark: SparkSession) -> None:
    planted.check_equal(spark, 3_000)


def test_half_of_the_rows_differ(spark: SparkSession) -> None:
    planted.check_half(spark, 3_000)


def test_mutations_at_the_edges_are_found(spark: SparkSession) -> None:
    for mutation in planted.mutations(seed=7, how_many=3, count=3_000):
        planted.check_mutation(spark, 3_000, mutation)


def test_some_of_each_kind_are_counted_exactly_in_windows(spark: SparkSession) -> None:
    planted_windows.check_each(spark, 3_000, 3)


def test_equal_windows_are_equal(spark: SparkSession) -> None:
    planted_windows.check_equal(spark, 3_000)
