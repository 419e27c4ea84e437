"""States of two jobs, key by key: a planted difference is found, and what only timing makes is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rewind.adapters import feed
from rewind.core import lifecycle
from rewind.core.offsets import Ranges
from rewind.steps import lateness, state_comparison
from rewind.steps.comparison import NOTHING
from rewind.steps.state_comparison import StateFound
from tests import cuts, fakes
from tests.cuts import Arrival, Job
from tests.fakes import TOPIC_ID

pytestmark = pytest.mark.timeout(900)

COUNTER, SESSIONS, ONCE = "visits_window_counter", "visits_sessions", "visits_deduplicated"
OPERATORS = {
    COUNTER: "0-stateStoreSave",
    SESSIONS: "0-sessionWindowStateStoreSaveExec",
    ONCE: "0-dedupeWithinWatermark",
}


def visits(count: int, first: int = 0) -> list[Arrival]:
    """Return visits of three users, one a minute from 07:00 on."""
    return [(n % cuts.PARTITIONS, visit(n)) for n in range(first, first + count)]


def visit(number: int, **other: Any) -> dict[str, Any]:
    at = cuts.at(f"{7 + number // 60:02d}:{number % 60:02d}")
    return {"event_id": f"v{number}", "visit_id": number, "user_id": number % 3, "page": "p", "event_time": at, **other}


@pytest.fixture
def jobs(spark: SparkSession, tmp_path: Path) -> Callable[..., list[Job]]:
    """Make live and a candidate of a shipped pipeline: `jobs(name, of_live, of_candidate)`, batches of each."""

    def make(name: str, *batches: Sequence[Sequence[Arrival]]) -> list[Job]:
        pipeline = cuts.shipped(name)
        own, settings = cuts.own_session(spark, pipeline), fakes.installation(tmp_path / "home")
        made = [Job(own, settings, pipeline, number) for number in (1, 2)]
        for job, mine in zip(made, batches, strict=True):
            job.read(*mine)
        return made

    return make


def compared(live: Job, candidate: Job, trusted_from: int = NOTHING) -> StateFound:
    """Compare the states; what one of them has read beyond the other is in its feed."""

    def records(spark: SparkSession, ranges: Ranges) -> DataFrame:
        further = max((live, candidate), key=lambda job: sum(job.ranges[-1][p].end for p in job.ranges[-1]))
        return feed.records(spark, further.feed, ranges, TOPIC_ID)

    return state_comparison.compared(
        live.spark, live.settings, live.generation, candidate.generation, trusted_from, records
    )


def told(found: StateFound, name: str) -> dict[str, int]:
    return {kind: count for kind, count in found.counts[OPERATORS[name]].items() if count}


@pytest.mark.parametrize(("name", "kept"), [(COUNTER, 3), (SESSIONS, 3), (ONCE, 20)])
def test_equal_jobs_in_other_batches_differ_in_no_key(jobs, name, kept):
    made = visits(80)
    found = compared(*jobs(name, cuts.cut(made, 2), cuts.cut(made, 5)))
    assert told(found, name) == {"equal": kept}
    assert (found.sample, found.not_compared) == ((), "")


@pytest.mark.parametrize(
    ("name", "planted", "key", "classes"),
    [
        # A visit at another minute of an open window: one window has it and the other has not.
        (COUNTER, visit(79, event_time=cuts.at("08:09")), "08:0", {"equal": 1, "changed": 2}),
        (SESSIONS, visit(79, event_time=cuts.at("08:18")), '"user_id":1', {"equal": 2, "changed": 1}),
        (ONCE, visit(79, event_id="other"), "other", {"equal": 19, "missing": 1, "extra": 1}),
    ],
)
def test_a_planted_difference_is_found_with_both_values(jobs, monkeypatch, name, planted, key, classes):
    monkeypatch.setattr(lateness, "left_out_by_one", lambda spark, *_: none_late(spark))
    made = visits(80)
    live, candidate = jobs(name, cuts.cut(made, 2), cuts.cut([*made[:-1], (1, planted)], 2))
    found = compared(live, candidate)
    assert told(found, name) == classes
    assert len(found.sample) == sum(count for kind, count in classes.items() if kind != "equal")
    assert any(key in row["key"] or key in str(row["candidate"]) for row in found.sample)
    verdict, reason = state_comparison.gated(lifecycle.PASS, "", found, live.pipeline)
    assert (verdict, reason) == (lifecycle.FAIL, f"{found.differing()} keys differ in the state")


def none_late(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], cuts.FIELDS)
