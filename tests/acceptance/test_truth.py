"""What the issue `truth` asks to be shown at full length; its other lines are marked in the tiers.

`make accept WHAT=truth` runs both.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.core.settings import Settings
from tests.scenarios import drawn_ranges, owners, truth_pairs, truth_values
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
PAIRS, VALUES, VALUES_OF_JOBS, LOGS, SETS = 10_000, 300, 2_000, 60, 200
ZONES = ("Europe/Paris", "America/New_York")


def seeded() -> int:
    """Return the seed of the environment, or a drawn one, and print it."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}")
    return seed


def test_shows_2_round_trip(figure: Figure, spark: SparkSession, tmp_path: Path) -> None:
    seed, found = seeded(), Counter[str]()
    for form, zone in itertools.product(truth_values.FORMS, ZONES):
        draw = random.Random(f"{seed} {form} {zone}")
        found.update(truth_values.through_outputs(spark, tmp_path, form, zone, draw, VALUES))
    figure("values_through_kafka_and_delta", f"{dict(found)}, {VALUES} of each type, form and zone, SEED={seed}")


def test_shows_2_through_jobs(figure: Figure, workshop: Callable[..., Workshop], spark: SparkSession) -> None:
    seed = seeded()
    found = truth_values.through_jobs(workshop, spark, random.Random(seed), VALUES_OF_JOBS)
    figure("values_through_stream_repair_and_backfill", f"{dict(found)} of topics and tables, SEED={seed}")


def test_shows_3_pairs_of_rows(figure: Figure, spark: SparkSession) -> None:
    seed = seeded()
    figure("pairs_without_false_pass_or_false_alarm", f"{truth_pairs.check(spark, PAIRS, seed)}, SEED={seed}")


def test_shows_4_ranges_on_a_broker(figure: Figure, settings: Settings) -> None:
    seed = seeded()
    clocks, cleaned, left_open = drawn_ranges.on_a_broker(settings, seed, LOGS)
    assert len(clocks) > 3
    assert min(cleaned, left_open) > 0
    figure("logs_on_a_broker_that_equal_the_oracle", f"{LOGS}, {cleaned} cleaned, {left_open} held back, SEED={seed}")


def test_shows_8_owners(figure: Figure) -> None:
    seed = seeded()
    reached = owners.played(seed, SETS)
    figure("sets_of_pipelines_without_a_second_owner", f"{SETS}, SEED={seed}, {dict(reached.most_common(12))}")
