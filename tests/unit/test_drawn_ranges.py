"""Ranges, ends and lags of 2,000 drawn logs are those of an oracle that shares no code."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.scenarios.drawn_ranges import CLEANED_EVERY, check
from tests.support.drawn_logs import CLOCKS
from tests.support.fakes import FakeBroker

SEED = int(os.environ.get("SEED", "20"))
LOGS = 2_000


@pytest.mark.shows("truth", logs_on_the_fake_that_equal_the_oracle=LOGS)
def test_ranges_ends_and_lags_of_drawn_logs_are_the_oracle_s():
    drawn = [check(SEED * LOGS + n, FakeBroker(), "visits", cleaned=n % CLEANED_EVERY == 0) for n in range(LOGS)]
    seen = Counter(log.clock for log in drawn)
    assert min(seen[clock] for clock in CLOCKS) > LOGS / len(CLOCKS) / 2
