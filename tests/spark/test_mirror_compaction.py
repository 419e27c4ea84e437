"""A compacted mirror is read by offset as sparingly as before."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.scenarios.mirroring import compaction_figures

pytestmark = pytest.mark.full


def test_after_compaction_a_small_range_opens_the_files_that_hold_it(spark: SparkSession, tmp_path: object) -> None:
    opened, held = compaction_figures(spark, str(tmp_path / "table"), 12_000, commits=2, files=24)
    assert held == 3
    assert opened <= 1.1 * held
