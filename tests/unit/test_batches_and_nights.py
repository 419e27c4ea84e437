"""What is asked of recorded batches at the edge of an instant, and which night the next one goes on from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rewind.core.horizon import Frontier
from rewind.core.model import Batch
from rewind.core.nights import Night, Sample
from rewind.registry import nightly_replays, progress
from rewind.registry.database import now, writing
from tests.support.fakes import installation

JOB, FIRST, DAY = "visits_converter-g1", datetime(2025, 9, 4, tzinfo=UTC), timedelta(days=1)


@pytest.fixture
def registry(tmp_path):
    with writing(installation(tmp_path).registry_url) as connection:
        yield connection


@pytest.mark.parametrize(("instant", "last", "first_after"), [(9, None, 1), (10, 1, 2), (11, 1, 2), (30, 3, None)])
def test_a_batch_that_closes_at_an_instant_is_not_after_it(registry, instant, last, first_after):
    for number in (1, 2, 3):
        progress.record(registry, JOB, 1, Batch(number, {0: 0}, {0: 1}, 1, now(), 0, number * 10))
    found = progress.last_closing(registry, JOB, instant), progress.first_closing_after(registry, JOB, instant)
    assert tuple(batch and batch.batch for batch in found) == (last, first_after)


def night(n, sample=None):
    return Night("visits_converter", FIRST + n * DAY, FIRST + (n + 1) * DAY, "", sample or Sample())


@pytest.mark.parametrize("state", ["consistent", "drifted", "nothing", "error", "running"])
def test_a_night_goes_on_from_one_of_its_own_sample_and_job_that_has_an_answer(registry, state):
    begun = nightly_replays.begin(registry, night(0), {}, "r1", JOB)
    if state != "running":
        nightly_replays.finish(registry, begun.replay_id, state, "", {}, {}, Frontier({0: 9}))
    far = nightly_replays.frontier_before(registry, night(1), JOB)
    assert far == (Frontier({0: 9}) if state in ("consistent", "drifted", "nothing") else None)
    assert nightly_replays.frontier_before(registry, night(1, Sample((0,))), JOB) is None
    assert nightly_replays.frontier_before(registry, night(1), "visits_converter-g2") is None
    assert nightly_replays.frontier_before(registry, replace(night(2)), JOB) is None, "a night lies between"
