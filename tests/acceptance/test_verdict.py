"""What the issue `verdict` asks to be shown at full length; its other lines are marked in the tiers.

`make accept WHAT=verdict` runs both.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.core.pipeline import KAFKA
from rewind.core.settings import Settings
from tests.scenarios import nightly_kills, nightly_line, nightly_week, nightly_wrong, planted, planted_windows, rechecks
from tests.scenarios.browser_life import NOTIFIER
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
