"""Nightly replays of real jobs: from the mirror, through the frozen code, against what live wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rewind.core.offsets import OffsetRange
from tests.scenarios import nightly_line
from tests.scenarios.nightly_life import FIRST, day, evidence, found, plant, replay, submitted, visit
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(900)]


def counts(body: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in body.items() if count}


def test_nights_join_a_drift_is_found_and_a_sample_says_so(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("nightly", 2)
    for night in range(3):
        for partition in range(2):
            day(shop, night, 40, partition)
    live = shop.deploy()
    for owner in (live, shop.mirror):
        shop.start(owner)
        shop.caught_up(owner)
    first = replay(shop, live, 0)
    assert (first.replay_id, first.label, first.state, first.attempt) == ("nightly-n1", "2025-09-04", "consistent", 1)
    assert first.ranges == {0: OffsetRange(0, 40), 1: OffsetRange(0, 40)}
    assert counts(first.counts) == {"rows": 80, "equal": 80}

    # Written late in time: older than the night that is over, and part of the last one that has records.
    shop.produce(visit(1, FIRST), at=lambda _: FIRST)
    shop.caught_up(live)
    shop.caught_up(shop.mirror)
    plant(shop, lambda answer: answer.headers["rewind-source"].endswith(":1:47"))
    second = replay(shop, live, 1)
    assert (second.state, second.ranges) == ("drifted", {0: OffsetRange(40, 80), 1: OffsetRange(40, 80)})
    assert second.reason == "1 changed; 1 repeated_differently"
    assert second.fields == {"changed": {"visited_page": 1}}
    body = evidence(shop, second)
    assert [(row["partition"], row["offset"]) for row in body["sample"]] == [(1, 47)]
    assert body["about"]["replayed"] == "all partitions"

    # Another sample of a night has its offsets and a report of its own; the night after a gap tells what was left out.
    some = replay(shop, live, 1, sample={"partitions": [0], "share": 0.5})
    assert (some.replay_id, some.state, some.ranges) == ("nightly-n3", "consistent", second.ranges)
    assert 0 < some.counts["rows"] == some.counts["equal"] < 40
    assert evidence(shop, some)["about"]["replayed"] == "partitions 0, 50.00% of the keys"
    assert found(shop, 1).state == "drifted"

    fourth = replay(shop, live, 3, missed=[2])
    assert (fourth.state, fourth.reason, fourth.offsets) == ("nothing", "no record came", 0)
    left_out = found(shop, 2)
    assert (left_out.state, left_out.attempt, left_out.offsets) == ("not_replayed", 0, 81)
    died = submitted(shop, live, 2, environment={"REWIND_CRASH_AT": "before:night.finish"})
    assert died.code not in (0, 64), died.output[-4000:]
    assert found(shop, 2).attempt == 1
    again = replay(shop, live, 2)
    assert (again.replay_id, again.attempt, again.state) == (left_out.replay_id, 2, "consistent")
    assert counts(again.counts) == {"rows": 81, "equal": 81}


@pytest.mark.acceptance
@pytest.mark.shows("verdict", night_without_horizon="goes on from the one before, killed once")
def test_a_night_of_a_job_without_horizon_goes_on_from_the_one_before(workshop: Callable[..., Workshop]) -> None:
    nightly_line.two_nights(*nightly_line.endless(workshop, 2))
