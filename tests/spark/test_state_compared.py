"""States of two jobs, key by key: a planted difference is found, and what only timing makes is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror
from rewind.core import lifecycle
from rewind.core.errors import RetryError
from rewind.core.offsets import Ranges
from rewind.core.pipeline import VOLATILE, ColumnRule, ExpectedChange
from rewind.runtime.drivers import supervise
from rewind.steps.compare import lateness, state_comparison
from rewind.steps.compare.comparison import NOTHING
from rewind.steps.compare.state_comparison import StateFound
from tests.support import cuts
from tests.support.cuts import Arrival, Job, Lives
from tests.support.fakes import TOPIC_ID
from tests.support.tiers import one_in_all, tiered

pytestmark = pytest.mark.timeout(900)

COUNTER, SESSIONS, ONCE = "visits_window_counter", "visits_sessions", "visits_deduplicated"
OPERATORS = {
    COUNTER: "0-stateStoreSave",
    SESSIONS: "0-sessionWindowStateStoreSaveExec",
    ONCE: "0-dedupeWithinWatermark",
}

EQUAL_KEYS = [(COUNTER, 3), (SESSIONS, 3), (ONCE, 40)]
"""How many keys the state of each holds after 80 visits."""


def visits(count: int, first: int = 0) -> list[Arrival]:
    """Return visits of three users, one a minute from 07:00 on."""
    return [(n % cuts.PARTITIONS, visit(n)) for n in range(first, first + count)]


def visit(number: int, **other: Any) -> dict[str, Any]:
    at = cuts.at(f"{7 + number // 60:02d}:{number % 60:02d}")
    return {"event_id": f"v{number}", "visit_id": number, "user_id": number % 3, "page": "p", "event_time": at, **other}


UNREAD = b"no visit"
PLANTED = [
    # The count of the last window, with the first and last offset of both partitions.
    (COUNTER, UNREAD, {"equal": 2, "changed": 1}, ("T10:10", "{10, 35, 39, 35, 39}", "{9, 35, 39, 35, 38}")),
    (
        SESSIONS,
        visit(79, event_time=cuts.at("08:18")),
        {"equal": 2, "changed": 1},
        ('"user_id":1', "10:29:00.000001", "10:28:00.000001"),
    ),
    (
        ONCE,
        UNREAD,
        {"equal": 39, "missing": 1, "evicted": 1},
        ("v79", f"{{{cuts.millis('08:39') * 1000}}}", "None"),
    ),
]
"""The last visit as the candidate reads it, how many keys are of which class, and the one that differs: parts of its
key and of both values."""


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The mirror holds what a job has read that a test puts here."""
    readers: list[Job] = []

    def rows(spark: SparkSession, *_: Any) -> DataFrame:
        (job,) = readers
        return spark.read.format("delta").load(job.feed)

    monkeypatch.setattr(lateness, "_rows", rows)
    return readers


@pytest.fixture(scope="module")
def lives(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lives:
    return Lives(session, tmp_path_factory.mktemp)


@pytest.fixture
def jobs(lives: Lives, tmp_path: Path) -> Callable[..., list[Job]]:
    """Make live and a candidate of a shipped pipeline: `jobs(name, of_live, of_candidate)`, batches of each."""

    def make(name: str, *batches: Sequence[Sequence[Arrival]]) -> list[Job]:
        return lives.copied(tmp_path / "home", cuts.shipped(name), *batches)

    return make


def compared(live: Job, candidate: Job, trusted_from: int = NOTHING) -> StateFound:
    """Compare the states; what one of them has read beyond the other is in its feed."""

    def records(spark: SparkSession, ranges: Ranges) -> DataFrame:
        further = max((live, candidate), key=lambda job: sum(job.ranges[-1][p].end for p in job.ranges[-1]))
        rows = spark.read.format("delta").load(further.feed).withColumn("topic_id", F.lit(TOPIC_ID))
        return rows.where(mirror.in_ranges(ranges, TOPIC_ID))

    return state_comparison.compared(
        live.spark, live.settings, live.generation, candidate.generation, trusted_from, records
    )


def told(found: StateFound, name: str) -> dict[str, int]:
    return {kind: count for kind, count in found.counts[OPERATORS[name]].items() if count}


@pytest.mark.shows("stateful", **{"differing_keys_of_{kept}_in_the_state_of_{name}": 0})
@pytest.mark.parametrize(("name", "kept"), one_in_all(EQUAL_KEYS))
def test_equal_jobs_in_other_batches_differ_in_no_key(jobs, name, kept):
    made = visits(80)
    found = compared(*jobs(name, cuts.cut(made, 2), cuts.cut(made, 3)))
    assert told(found, name) == {"equal": kept}
    assert (found.sample, found.not_compared) == ((), "")


@pytest.mark.shows("stateful", **{"planted_in_one_record_of_{name}": "{classes}"})
@pytest.mark.parametrize(("name", "planted", "classes", "parts"), tiered(PLANTED, (), pytest.mark.acceptance))
def test_a_planted_difference_is_found_with_both_values(jobs, mirrored, name, planted, classes, parts):
    made = visits(80)
    live, candidate = jobs(name, cuts.cut(made, 2), cuts.cut([*made[:-1], (1, planted)], 2))
    mirrored.append(live)
    found = compared(live, candidate)
    assert told(found, name) == classes
    (row,) = found.sample
    assert [part in str(row[of]) for part, of in zip(parts, ("key", "live", "candidate"), strict=True)] == [True] * 3
    verdict, reason = state_comparison.gated(lifecycle.PASS, "", found, live.pipeline)
    assert (verdict, reason) == (lifecycle.FAIL, "1 keys differ in the state")


@pytest.mark.shows("stateful", **{"ahead_or_closed_in_one_state_of_{name}": "{classes}"})
@pytest.mark.parametrize(
    ("name", "classes"),
    one_in_all(
        [
            (COUNTER, {"equal": 2, "ahead": 1, "evicted": 1}),
            (SESSIONS, {"ahead": 3}),
            (ONCE, {"equal": 30, "ahead": 10, "evicted": 10}),
        ]
    ),
)
def test_what_one_job_alone_has_read_or_closed_is_no_difference(jobs, name, classes):
    live, candidate = jobs(name, cuts.cut(visits(80), 2), cuts.cut(visits(70), 2))
    before = files(live, candidate)
    found = compared(live, candidate)
    assert told(found, name) == classes
    nothing = "no key has had equal input in both jobs and is open in both"
    assert found.not_compared == ("" if "equal" in classes else nothing)
    assert not found.absent()
    # Nothing is ever written into the checkpoint of a job.
    assert files(live, candidate) == before


def files(*made: Job) -> dict[str, int]:
    """Return when each file of the jobs' checkpoints was written."""
    found = (file for job in made for file in Path(job.checkpoint).rglob("*"))
    return {str(file): file.stat().st_mtime_ns for file in found}


@pytest.mark.full
def test_a_key_that_differs_by_lateness_alone_is_late(jobs, mirrored):
    late = [(0, visit(100, event_id="late", event_time=cuts.at("07:45")))]
    made = visits(80)
    live, candidate = jobs(ONCE, [made[:70], made[70:], late], [made + late])
    mirrored.append(live)
    found = compared(live, candidate)
    assert told(found, ONCE) == {"equal": 40, "late": 1}
    assert found.sample == ()


@pytest.mark.full
def test_warm_up_is_not_compared(jobs):
    made = visits(80)
    # The candidate lacks some minutes of an open window that began before both were whole.
    unread = [(partition, b"no visit") for partition, _ in made[52:55]]
    live, candidate = jobs(COUNTER, [made], [made[:52] + unread + made[55:]])
    found = compared(live, candidate, cuts.millis("08:00"))
    assert told(found, COUNTER) == {"equal": 2, "warm_up": 1}


def test_a_state_that_is_gone_is_told_and_tried_again(jobs):
    live, candidate = jobs(COUNTER, cuts.cut(visits(80), 2), cuts.cut(visits(70), 2))
    for file in Path(live.checkpoint, "state", "0").glob("[01]/*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(RetryError, match=r"is gone that was there a moment ago: run validate again"):
        compared(live, candidate)
    assert not (supervise.generation_folder(live.settings, candidate.generation.job_id) / "state-compared").exists()


def test_another_kind_of_state_and_a_job_without_batches_are_told(jobs):
    live, candidate = jobs(COUNTER, cuts.cut(visits(80), 2), [])
    found = compared(live, candidate)
    assert "has no committed batch" in found.not_compared
    assert state_comparison.gated(lifecycle.PASS, "", found, live.pipeline)[0] == lifecycle.ERROR
    candidate.generation.frozen["state"] = ["another"]
    found = compared(live, candidate)
    told = "the states were not compared: the candidate keeps another state than live"
    assert state_comparison.gated(lifecycle.PASS, "", found, live.pipeline) == (lifecycle.PASS, told)


CHANGED = StateFound({"0-stateStoreSave": {"changed": 2, "equal": 5}})


@pytest.mark.parametrize(
    ("verdict", "found", "expected", "becomes"),
    [
        (lifecycle.PASS, StateFound(), (), (lifecycle.PASS, "")),
        (lifecycle.PASS, CHANGED, (), (lifecycle.FAIL, "2 keys differ in the state")),
        (lifecycle.PASS, CHANGED, (ExpectedChange("count"),), (lifecycle.PASS, "")),
        (lifecycle.PASS, CHANGED, (ColumnRule("count", VOLATILE),), (lifecycle.PASS, "")),
        (lifecycle.ERROR, CHANGED, (), (lifecycle.ERROR, "")),
    ],
)
def test_the_gate(verdict, found, expected, becomes):
    told_alone = "rules" if expected and isinstance(expected[0], ColumnRule) else "expected"
    pipeline = cuts.shipped(COUNTER, **{told_alone: expected})
    assert state_comparison.gated(verdict, "", found, pipeline) == becomes
