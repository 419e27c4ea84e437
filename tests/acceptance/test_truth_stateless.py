"""Show 6 of the issue `truth` at full length: what is accepted as row-wise does not differ over drawn cuts."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.scenarios import batch_cuts
from tests.support import logics

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(7_200)]

CUTS, RECORDS = 20, 60


def test_shows_6_accepted_logics(figure: Callable[[str, object], None], spark: SparkSession) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}")
    drawn = batch_cuts.parsed(spark, logics.PIPELINE, seed, RECORDS)
    for name, logic in logics.ALL_ACCEPTED.items():
        assert batch_cuts.differing(drawn, logic, seed, CUTS) == set(), name
    figure("accepted_logics_that_do_not_differ", f"{len(logics.ALL_ACCEPTED)} over {CUTS} cuts, SEED={seed}")
