"""What the issue `verdict` asks to be shown; `make accept WHAT=verdict`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rewind.core.pipeline import KAFKA
from rewind.core.settings import Settings
from tests.scenarios import nightly_kills, nightly_line, nightly_week, nightly_wrong, planted, planted_windows, rechecks
from tests.scenarios.browser_life import NOTIFIER
from tests.spark import test_compare, test_compare_rules, test_expectations, test_mirror_maintenance, test_null_gate
from tests.spark.test_expectations import rows  # noqa: F401 - the rows of C43
from tests.spark.test_mirror_maintenance import path  # noqa: F401 - the mirror of C37
from tests.support import fakes
from tests.support.mailbox import mailbox
from tests.support.stage import Stage
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
ROWS, MUTATED_ROWS, MUTATIONS = 1_000_002, 100_002, 210
"""A third of the rows is in each partition."""


def test_shows_1_unchanged(figure: Figure, spark: SparkSession) -> None:
    figure("unchanged", planted.check_equal(spark, ROWS))


@pytest.mark.parametrize("each", [1, 100])
def test_shows_1_planted(figure: Figure, spark: SparkSession, each: int) -> None:
    figure(f"planted_{each}_of_each_of_{len(planted.KINDS)}_kinds", planted.check_each(spark, ROWS, each))


def test_shows_1_mutations(figure: Figure, spark: SparkSession) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}")
    drawn = planted.mutations(seed, MUTATIONS, MUTATED_ROWS)
    for mutation in drawn:
        planted.check_mutation(spark, MUTATED_ROWS, mutation)
    figure("mutations_without_false_pass_or_false_alarm", f"{len(drawn)} of {MUTATIONS}, SEED={seed}")


def test_shows_1_through_windows(figure: Figure, spark: SparkSession) -> None:
    figure("unchanged_windows", planted_windows.check_equal(spark, ROWS))
    for each in (1, 100):
        found = planted_windows.check_each(spark, ROWS, each)
        figure(f"planted_{each}_of_each_of_{len(planted_windows.KINDS)}_kinds_of_windows", found)


def test_shows_2_checked_again(figure: Figure, spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    offsets = ROWS // rechecks.PARTITIONS
    found = rechecks.one_percent(rechecks.Pair(spark, settings, KAFKA, "percent"), offsets)
    assert float(str(found["share_read_again"]).rstrip("%")) <= 2
    figure("checked_again_after_one_percent", found)
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    grown = rechecks.Pair(spark, fakes.installation(tmp_path / "grown"))
    figure(f"checks_that_went_on_and_equal_those_that_read_all_SEED_{seed}", rechecks.history(grown, 30, seed))


def test_shows_5_half_of_a_million_differ(figure: Figure, spark: SparkSession) -> None:
    heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()
    assert heap <= 2**30
    found = planted.check_half(spark, ROWS)
    figure("half_of_a_million_differ_with_a_heap_of_MiB", [heap // 2**20, found])


def test_shows_3_c09(figure: Figure, spark: SparkSession) -> None:
    test_compare.test_c09_null_keys_match_and_a_lost_repeat_is_seen(spark)
    figure("c09", "null keys match, a lost repeat is seen")


def test_shows_3_c12(figure: Figure, spark: SparkSession) -> None:
    test_compare.test_c12_what_lies_beyond_the_lower_position_is_open_not_missing(spark)
    figure("c12", "beyond the lower position is open")


def test_shows_3_c33(figure: Figure, spark: SparkSession) -> None:
    test_compare_rules.test_c33_floats_nan_and_negative_zero(spark)
    figure("c33_equal", sum(same for *_, same in test_compare_rules.C33))


def test_shows_3_c34(figure: Figure, spark: SparkSession) -> None:
    test_compare_rules.test_c34_columns_that_never_match_hide_no_difference(spark)
    figure("c34", "1 difference in page; undeclared, at and trace are named")


def test_shows_3_c37(figure: Figure, spark: SparkSession, tmp_path: Path, path: str) -> None:  # noqa: F811
    settings: Settings = fakes.installation(tmp_path / "home")
    test_null_gate.test_c37_a_field_that_changes_its_type(spark, tmp_path / "gated")
    test_mirror_maintenance.test_c37_a_field_that_nobody_declared_is_told_until_it_is(spark, settings, path)
    figure("c37_share_of_nulls_live_and_candidate", "0 % and 33.3 %: fails")


def test_shows_3_c43(figure: Figure, rows: DataFrame, tmp_path: Path) -> None:  # noqa: F811
    test_expectations.test_c43_counts_are_exact_samples_capped_and_values_exact(rows, tmp_path)
    figure("c43_unexpected_of_1000", 432)


def test_shows_3_a_check_that_raises(figure: Figure, rows: DataFrame, tmp_path: Path) -> None:  # noqa: F811
    test_expectations.test_one_that_raises_is_an_error_and_takes_no_other_away(rows, tmp_path)
    figure("a_suite_whose_check_raises", "error")


def test_shows_3_and_4_two_weeks_of_nights(figure: Figure, jars: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "home", jars, "weekly", 2, environment={**NOTIFIER, **nightly_week.SCHEDULE})
    try:
        with mailbox() as box:
            found = nightly_week.two_weeks(stage, box)
    finally:
        stage.down()
    for name, value in found.items():
        figure(name, value)


def test_nights_of_a_job_whose_results_may_count_any_record(workshop: Callable[..., Workshop]) -> None:
    shop, live = nightly_line.endless(workshop, 4)
    nightly_line.two_nights(shop, live)
    nightly_line.gap_and_damage(shop, live)


@pytest.mark.parametrize("kill", [nightly_kills.without_state, nightly_kills.with_state])
def test_a_night_that_is_killed_anywhere_and_replayed_again(
    figure: Figure, workshop: Callable[..., Workshop], tmp_path: Path, kill: Callable[..., int]
) -> None:
    figure(f"moments_at_which_a_night_{kill.__name__}_was_killed", kill(workshop, tmp_path / "saved"))


def test_nights_of_a_job_with_a_horizon(workshop: Callable[..., Workshop]) -> None:
    nightly_line.bounded(workshop)


@pytest.mark.parametrize("name", nightly_wrong.JOBS)
def test_shows_6_wrong_jobs(figure: Figure, workshop: Callable[..., Workshop], tmp_path: Path, name: str) -> None:
    figure(f"found_{name}", nightly_wrong.check(workshop, tmp_path, name))
