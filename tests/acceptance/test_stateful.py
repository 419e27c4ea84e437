"""What the issue `stateful` asks to be shown; `make accept WHAT=stateful`. What is missing is expected to fail."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.adapters import shared_table
from rewind.adapters.shared_table import SharedTable
from rewind.control.publications import Counts
from rewind.transforms import parsing
from tests import handover, histories
from tests.ground import ground
from tests.integration import test_seed_003, test_shared_output, test_stateful, test_window_repair
from tests.spark import test_shared_table
from tests.spark.test_source_swap import (  # noqa: F401 - the third line of the Shows is these tests
    swap,
    test_1_a_batch_that_is_not_committed_forbids_the_swap,
    test_1_a_feed_that_is_not_read_to_its_end_forbids_the_swap,
    test_1_a_feed_that_was_filled_and_never_read_forbids_the_swap,
    test_2_once_kafka_was_read_the_feed_is_never_read_again,
    test_3_a_restart_on_a_batch_that_is_not_committed,
    test_4_a_chunk_is_one_file_and_a_batch_one_chunk,
    test_4_a_commit_of_several_files_is_refused_and_so_is_a_batch_within_one,
)
from tests.stage import Stage
from tests.state_life import live_with_state
from tests.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]

SEED = int(os.environ.get("SEED") or 5)
HISTORIES, HISTORY_STEPS = 1_000, 12

MISSING = {
    "shows_4_cut_into_batches": "each pipeline in 1, 7 and 50 batches: equal newest versions over closed windows",
    "shows_6_state_compared": "a planted single-key difference in state is found; on equal jobs 0",
    "shows_7_cases": "C13, C19, C24 and half of C36; C01, C03 and C37 are in tests/spark",
}


def test_shows_1_seed_003(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    test_seed_003.test_seed_003(workshop)
    figure("seed_003", "batches 0 to 6 as printed")


def test_shows_1_the_books_windows(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    test_window_repair.test_what_live_left_out_as_late_is_told_and_mended(workshop)
    figure("repaired_window", "3 and 3; 5 after the repair, and no other window")


def test_shows_1_the_books_sessions(figure: Figure, workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    test_window_repair.test_the_sessions_that_an_hour_touches(workshop, spark)
    figure("repaired_sessions", "18, 2, 2 and 7 pages")


def test_its_state_is_rebuilt_and_taken_over(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    test_stateful.test_its_state_is_rebuilt_and_taken_over(workshop)
    figure("handed_over", "windows equal the oracle of both jobs")


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


def told(figure: Figure, kind: str, sums: Counts) -> None:
    figure(f"histories_{kind}", f"{HISTORIES:,} of {HISTORY_STEPS} steps, SEED={SEED}, equal the newest-version oracle")
    figure(f"merged_{kind}", f"{sums.written:,} written, {sums.repeated:,} repeated, {sums.stale:,} stale and skipped")


def test_shows_5_shared_output_on_delta(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "out-shared")
    shared_table.create(spark, path, test_shared_table.SCHEMA)
    table = SharedTable(spark, path, parsing.declared(test_shared_table.SCHEMA))
    steps = histories.drawn(SEED, HISTORIES, HISTORY_STEPS)
    told(figure, "on_delta", test_shared_table.merge_all(spark, table, steps))


def test_shows_5_shared_output_on_kafka(figure: Figure, workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    steps = histories.drawn(SEED, HISTORIES, HISTORY_STEPS)
    shop = workshop("histories", 3)
    told(figure, "on_kafka", test_shared_output.merge_all(spark, shop.settings, shop, steps))


def test_shows_5_an_aborted_candidate_leaves_no_trace(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    test_shared_output.test_a_life_of_a_shared_topic(workshop)
    figure(
        "shared_life", "deployed, aborted without a trace, taken over, rolled back: readers saw the live job's answers"
    )


@pytest.mark.parametrize("like", ["visits_window_counter", "visits_sessions"])
def test_shows_8_a_real_scheduler(figure: Figure, jars: Path, tmp_path: Path, like: str) -> None:
    stage = Stage(tmp_path / "home", jars, like.removeprefix("visits_"), 2, like=like)
    try:
        counts = live_with_state(stage)
    finally:
        stage.down()
    figure(f"live_{like}", counts)


@pytest.mark.parametrize("line", MISSING)
@pytest.mark.xfail(strict=True, raises=NotImplementedError, reason="not built yet, or not shown")
def test_what_is_missing(line: str) -> None:
    raise NotImplementedError(MISSING[line])
