"""What the issue `stateful` asks to be shown at full length; its other lines are marked in the tiers.

`make accept WHAT=stateful` runs both.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.registry.publications import Counts
from tests.scenarios import cut_cases, handover, histories, late_rows, shared_histories, shared_life
from tests.scenarios.state_life import live_with_state
from tests.support.ground import ground
from tests.support.stage import Stage
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]

SEED = int(os.environ.get("SEED") or 5)
HISTORIES, HISTORY_STEPS = 1_000, 12


def test_shows_1_the_books_windows(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    late_rows.reported_and_repaired(workshop)
    figure("repaired_window", "3 and 3; 5 after the repair, and no other window")


@pytest.mark.timeout(5_400)
def test_shows_2_a_million_visits(figure: Figure, jars: Path, tmp_path: Path, spark: SparkSession) -> None:
    declared = {"like": "visits_window_counter", "backfill": {"chunk_records": 80_000}}
    with ground(tmp_path, jars, "million", partitions=3, **declared) as made:
        life = handover.Handover(made, 1_000_000, random.Random(SEED))
        life.history(spark, 1_000_000)
        for name, trouble in handover.TROUBLES.items():
            counted = life.rewind(trouble, 500)
            assert counted["chunks"] >= 10
            figure(name, counted)
        figure("visits", sum(map(len, life.events.values())))


@pytest.mark.parametrize("name", cut_cases.SHIPPED)
def test_shows_4_cut_into_batches(figure: Figure, spark: SparkSession, tmp_path: Path, name: str) -> None:
    closed = cut_cases.check(spark, tmp_path, name, 3_000, (1, 7, 50))
    figure(f"{name}_results_equal_in_1_7_and_50_batches", closed)


def told(figure: Figure, kind: str, sums: Counts) -> None:
    figure(f"histories_{kind}", f"{HISTORIES:,} of {HISTORY_STEPS} steps, SEED={SEED}, equal the newest-version oracle")
    figure(f"merged_{kind}", f"{sums.written:,} written, {sums.repeated:,} repeated, {sums.stale:,} stale and skipped")


def test_shows_5_shared_output_on_delta(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    table = shared_histories.new_table(spark, str(tmp_path / "out-shared"))
    steps = histories.drawn(SEED, HISTORIES, HISTORY_STEPS)
    told(figure, "on_delta", shared_histories.merged_into_table(spark, table, steps))


def test_shows_5_shared_output_on_kafka(figure: Figure, workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    steps = histories.drawn(SEED, HISTORIES, HISTORY_STEPS)
    told(figure, "on_kafka", shared_histories.merged_into_topic(spark, workshop("histories", 3), steps))


def test_shows_5_an_aborted_candidate_leaves_no_trace_in_a_table(
    figure: Figure, workshop: Callable[..., Workshop], spark: SparkSession
) -> None:
    shared_life.life_of_a_shared_table(workshop, spark)
    figure("shared_table", shared_life.LIFE)


@pytest.mark.parametrize("like", ["visits_window_counter", "visits_sessions"])
def test_shows_8_a_real_scheduler(figure: Figure, jars: Path, tmp_path: Path, like: str) -> None:
    stage = Stage(tmp_path / "home", jars, like.removeprefix("visits_"), 2, like=like)
    try:
        counts = live_with_state(stage)
    finally:
        stage.down()
    figure(f"live_{like}", counts)
