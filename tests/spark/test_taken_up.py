"""A check that goes on from the last one says what one says that reads all, and sees when it may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.core.offsets import OffsetRange
from tests.scenarios.rechecks import CANDIDATE, LIVE, PARTITIONS, Pair, history, value
from tests.support import fakes

pytestmark = pytest.mark.full


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> Pair:
    return Pair(spark, fakes.installation(tmp_path / "home"))


def whole(last: int) -> dict[int, OffsetRange]:
    return {p: OffsetRange(0, last) for p in range(PARTITIONS)}


def test_outputs_that_grow_by_chance(pair: Pair) -> None:
    told = history(pair, 4, seed=11)
    assert told["went_on"] >= 2
    assert told["differences"] > 5


def test_a_row_of_what_was_judged_makes_all_be_read(pair: Pair) -> None:
    for side in (LIVE, CANDIDATE):
        pair.write(side, pair.stretch(0, 10, "'home'"))
    before = pair.checked(whole(10), pair.whole(whole(10)), 1)
    # Written again, with other bytes, below the ceiling.
    pair.write(CANDIDATE, pair.records([(1, 3, value(3, "other")), (0, 10, value(10, "home"))]))
    pair.write(LIVE, pair.records([(0, 10, value(10, "home"))]))
    horizon = {**whole(10), 0: OffsetRange(0, 11)}
    assert pair.again(horizon, before) is None
    assert pair.whole(horizon).counts["repeated_differently"] == 1


def test_a_floor_that_moved_makes_all_be_read(pair: Pair) -> None:
    for side in (LIVE, CANDIDATE):
        pair.write(side, pair.stretch(0, 10, "'home'"))
    before = pair.checked(whole(10), pair.whole(whole(10)), 1)
    assert pair.again({**whole(10), 1: OffsetRange(2, 10)}, before) is None
    same = pair.again(whole(10), before)
    assert same is not None
    assert same.counts["rows"] == 30
