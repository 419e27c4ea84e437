"""Ranges, ends and lags on a real broker: transactions are really left open, and the cleaner is awaited."""

from __future__ import annotations

import os

import pytest

from tests.scenarios import drawn_ranges

SEED = int(os.environ.get("SEED", "20"))


@pytest.mark.full
@pytest.mark.integration
def test_ranges_ends_and_lags_of_drawn_logs_are_the_oracle_s(settings):
    clocks, cleaned, left_open = drawn_ranges.on_a_broker(settings, SEED, logs=8)
    assert (len(clocks) > 2, cleaned > 0, left_open > 0) == (True, True, True)
