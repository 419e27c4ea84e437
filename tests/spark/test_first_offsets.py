"""Where a night begins in a mirror: neither a late record nor a wrong clock moves what comes after them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.adapters import mirror
from tests.support import cuts
from tests.support.fakes import TOPIC, TOPIC_ID

pytestmark = pytest.mark.full

START = datetime(2025, 9, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)


def written(spark: SparkSession, place: str, partition: int, hours: list[float]) -> None:
    """Append records of a partition, by the hours after the start that their timestamps say."""
    rows = [(partition, o, START + hour * HOUR, 0, TOPIC, None, b"{}", []) for o, hour in enumerate(hours)]
    frame = spark.createDataFrame(rows, cuts.FIELDS).coalesce(1)
    mirror.append(frame, place, TOPIC_ID, "2025-09-04", application="m", batch=partition, metadata="")


def test_neither_a_late_record_nor_a_wrong_clock_counts_for_others(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "mirror")
    mirror.create(spark, place)
    written(spark, place, 0, [0, 1, 2, 3, 0.5, 4])
    # The third one is of next year, says its clock.
    written(spark, place, 1, [0, 1, 9_000, 2, 3, 4])
    written(spark, place, 2, [0, 1])
    instants = [START + n * HOUR for n in (0, 2, 3, 5)]
    found = mirror.first_offsets(spark, place, TOPIC_ID, instants, START + 100 * HOUR)
    assert found == [{0: 0, 1: 0, 2: 0}, {0: 2, 1: 3}, {0: 3, 1: 4}, {}]
    assert mirror.first_offsets(spark, place, "another", instants, START + 100 * HOUR) == [{}, {}, {}, {}]
