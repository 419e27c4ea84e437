"""Into how many batches the same records are cut changes no closed result, where none of them is late."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.scenarios import cut_cases

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["visits_window_counter", "visits_sessions"])
def test_the_same_records_in_1_and_3_batches(spark: SparkSession, tmp_path: Path, name: str) -> None:
    assert cut_cases.check(spark, tmp_path, name, 300, (1, 3)) >= 12


def test_a_cut_that_makes_records_late_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    name = "visits_closed_windows"
    made = cut_cases.visits(200, cut_cases.SHIPPED[name].delay)
    made.append({**made[0], "event_id": "late"})
    must = cut_cases.wanted(name, made)
    assert cut_cases.found(spark, tmp_path, name, made, 1) == must
    assert cut_cases.found(spark, tmp_path, name, made, 3) != must
