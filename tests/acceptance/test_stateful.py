"""What the issue `stateful` asks to be shown; `make accept WHAT=stateful`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rewind.adapters import delta_output, shared_table
from rewind.adapters.shared_table import SharedTable
from rewind.control.publications import Counts
from rewind.core.settings import Settings
from rewind.steps.logic import empty_stream
from rewind.transforms import parsing
from tests.scenarios import cut_cases, handover, histories
from tests.scenarios.state_life import live_with_state
from tests.spark import (
    test_arrival_order,
    test_delta_output,
    test_mirror_maintenance,
    test_null_gate,
    test_shared_table,
    test_state_compared,
    test_state_pipelines,
    test_stateful_cases,
)
from tests.spark.test_mirror_maintenance import path  # noqa: F401 - the mirror of C24
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
from tests.spark.test_state_compared import jobs, mirrored  # noqa: F401 - two jobs, and what the mirror holds
from tests.steps import test_seed_003, test_shared_output, test_stateful, test_window_repair
from tests.support import fakes
from tests.support.cuts import Job
from tests.support.ground import ground
from tests.support.stage import Stage
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]

SEED = int(os.environ.get("SEED") or 5)
HISTORIES, HISTORY_STEPS = 1_000, 12


def test_shows_1_seed_003(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    test_seed_003.test_seed_003(workshop)
    figure("seed_003", "batches 0 to 6 as printed")


def test_shows_1_the_books_windows(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    test_window_repair.what_live_left_out_as_late_is_told_and_mended(workshop)
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


@pytest.mark.parametrize("name", cut_cases.SHIPPED)
def test_shows_4_cut_into_batches(figure: Figure, spark: SparkSession, tmp_path: Path, name: str) -> None:
    closed = cut_cases.check(spark, tmp_path, name, 3_000, (1, 7, 50))
    figure(f"{name}_results_equal_in_1_7_and_50_batches", closed)


def told(figure: Figure, kind: str, sums: Counts) -> None:
    figure(f"histories_{kind}", f"{HISTORIES:,} of {HISTORY_STEPS} steps, SEED={SEED}, equal the newest-version oracle")
    figure(f"merged_{kind}", f"{sums.written:,} written, {sums.repeated:,} repeated, {sums.stale:,} stale and skipped")


def test_shows_5_shared_output_on_delta(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "out-shared")
    shared_table.create(spark, place, test_shared_table.SCHEMA)
    table = SharedTable(spark, place, parsing.declared(test_shared_table.SCHEMA))
    steps = histories.drawn(SEED, HISTORIES, HISTORY_STEPS)
    told(figure, "on_delta", test_shared_table.merge_all(spark, table, steps))


def test_shows_5_shared_output_on_kafka(figure: Figure, workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    steps = histories.drawn(SEED, HISTORIES, HISTORY_STEPS)
    shop = workshop("histories", 3)
    told(figure, "on_kafka", test_shared_output.merge_all(spark, shop.settings, shop, steps))


LIFE = "deployed, aborted without a trace, taken over, rolled back: readers saw the live job's answers"


def test_shows_5_an_aborted_candidate_leaves_no_trace(figure: Figure, workshop: Callable[..., Workshop]) -> None:
    test_shared_output.test_a_life_of_a_shared_topic(workshop)
    figure("shared_topic", LIFE)


def test_shows_5_nor_in_a_table(figure: Figure, workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    test_shared_output.life_of_a_shared_table(workshop, spark)
    figure("shared_table", LIFE)


@pytest.mark.parametrize(("name", "kept"), test_state_compared.EQUAL_KEYS)
def test_shows_6_states_of_equal_jobs(
    figure: Figure,
    jobs: Callable[..., list[Job]],  # noqa: F811
    mirrored: list[Job],  # noqa: F811
    name: str,
    kept: int,
) -> None:
    test_state_compared.test_equal_jobs_in_other_batches_differ_in_no_key(jobs, name, kept)
    figure(f"differing_keys_of_{kept}_in_the_state_of_{name}", 0)


@pytest.mark.parametrize(("name", "planted", "classes", "parts"), test_state_compared.PLANTED)
def test_shows_6_a_planted_difference(
    figure: Figure,
    jobs: Callable[..., list[Job]],  # noqa: F811
    mirrored: list[Job],  # noqa: F811
    name: str,
    planted: Any,
    classes: dict[str, int],
    parts: tuple[str, str, str],
) -> None:
    test_state_compared.test_a_planted_difference_is_found_with_both_values(
        jobs, mirrored, name, planted, classes, parts
    )
    figure(f"planted_in_one_record_of_{name}", classes)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An installation of the case's own, without broker."""
    return fakes.installation(tmp_path / "home")


def test_shows_7_c01(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    tables = [str(tmp_path / name) for name in ("repeated", "other")]
    for table in tables:
        delta_output.create(spark, table, test_delta_output.SCHEMA)
    test_delta_output.test_c01_a_fresh_checkpoint_has_an_id_of_its_own_and_a_repeat_lands_once(spark, tables[0])
    test_delta_output.test_c01_a_write_under_an_id_that_the_table_holds_with_other_offsets_is_an_error(spark, tables[1])
    figure("c01_rows_after_a_fresh_checkpoint_and_a_replay", 50)


def test_shows_7_c03(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    own = test_arrival_order.own_session(spark)
    mirrors = [test_arrival_order.reversed_mirror(own, str(tmp_path / name)) for name in ("plain", "compacted")]
    homes = [tmp_path / f"home-of-{n}" for n in range(2)]
    test_arrival_order.test_c03_what_arrived_first_is_fed_first_and_nothing_is_late(own, mirrors[0], homes[0])
    test_arrival_order.test_c03_a_compaction_changes_nothing(own, mirrors[1], homes[1])
    figure("c03_windows", test_arrival_order.FIVE_EACH)


def test_shows_7_c13(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    test_stateful_cases.test_c13_a_driver_that_was_killed_within_a_batch(spark, tmp_path)
    figure("c13_possibly_repeated", "70-79; 5 repeats counted")


def test_shows_7_c19_windows(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    cut, moved = (fakes.installation(tmp_path / name) for name in ("cut", "moved"))
    test_stateful_cases.test_c19_what_a_start_within_a_window_cuts_is_neither_published_nor_compared(spark, cut)
    test_stateful_cases.test_c19_from_the_moved_start_the_window_is_whole(spark, moved)
    figure("c19_windows", "cut ones not published, those of the moved start equal")


@pytest.mark.parametrize(("start", "trusted", "emitted", "found"), test_stateful_cases.ONCE)
def test_shows_7_c19_deduplication(
    figure: Figure,
    spark: SparkSession,
    settings: Settings,
    start: int,
    trusted: str | None,
    emitted: list[str],
    found: dict[str, int],
) -> None:
    test_stateful_cases.test_c19_an_event_is_not_emitted_twice_across_both_outputs(
        spark, settings, start, trusted, emitted, found
    )
    figure(f"c19_e1_emitted_by_the_candidate_from_{start}", len(emitted))


def test_shows_7_c24_deletion(figure: Figure, spark: SparkSession, settings: Settings, path: str) -> None:  # noqa: F811
    test_mirror_maintenance.test_c24_a_privacy_deletion_while_a_backfill_reads(spark, settings, path)
    figure("c24_rows_of_the_pinned_version_and_of_the_next", "100 and 99")


def test_shows_7_c24_vacuum(figure: Figure, spark: SparkSession, settings: Settings, path: str) -> None:  # noqa: F811
    test_mirror_maintenance.test_c24_a_version_that_a_vacuum_took_stops_a_wave_before_its_first_chunk(
        spark, settings, path
    )
    test_mirror_maintenance.test_c24_missing_files_are_never_ignored(spark)
    figure("c24_chunks_begun_on_a_version_that_is_gone", 0)


def test_shows_7_c36(figure: Figure, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, counted = (fakes.installation(tmp_path / name) for name in ("opened", "counted"))
    test_stateful_cases.test_c36_a_window_that_no_event_closes_is_open_and_no_difference(spark, opened)
    test_stateful_cases.test_c36_the_report_counts_the_records_that_each_job_left_out(spark, counted, monkeypatch)
    test_state_pipelines.test_c36_a_watermark_without_delay_is_refused(empty_stream(spark))
    figure("c36", "1 open, then 1 equal; 2 and 0 records late; no delay refused; a stuck watermark in tests/unit")


def test_shows_7_c37(figure: Figure, spark: SparkSession, settings: Settings, tmp_path: Path, path: str) -> None:  # noqa: F811
    test_null_gate.test_c37_a_field_that_changes_its_type(spark, tmp_path / "gated")
    test_mirror_maintenance.test_c37_a_field_that_nobody_declared_is_told_until_it_is(spark, settings, path)
    figure("c37_share_of_nulls_live_and_candidate", "0 % and 33.3 %: fails; lang told until declared")


@pytest.mark.parametrize("like", ["visits_window_counter", "visits_sessions"])
def test_shows_8_a_real_scheduler(figure: Figure, jars: Path, tmp_path: Path, like: str) -> None:
    stage = Stage(tmp_path / "home", jars, like.removeprefix("visits_"), 2, like=like)
    try:
        counts = live_with_state(stage)
    finally:
        stage.down()
    figure(f"live_{like}", counts)
