"""Public faults of jobs with state: cases C13, C19 and C36, on real queries, tables and checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.adapters import checkpoint, mirror
from rewind.core import lifecycle
from rewind.core.offsets import OffsetRange, total
from rewind.core.settings import Settings
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log
from rewind.registry.mirrors.mirror_log import Commit
from rewind.steps.compare import comparison, findings, late_counts
from rewind.steps.compare.findings import Found
from rewind.steps.lifecycle import cut_over
from tests.support import cuts, fakes
from tests.support.compared_rows import HORIZON, SIDES, located, page
from tests.support.cuts import Arrival, Job, at, millis
from tests.support.tiers import one_in_all

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return fakes.installation(tmp_path / "home")


def visit(minute: int, event: str = "") -> Arrival:
    """Return a visit so many minutes after 09:00, in partition 0."""
    time = at(f"{9 + minute // 60:02d}:{minute % 60:02d}")
    return 0, {"event_id": event or f"v{minute}", "visit_id": minute, "event_time": time, "page": "home"}


def differing(found: Found) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in found.counts.items() if count}


# Offset n has the event time 09:34 and n minutes: window 10:00 holds the offsets 26 to 35.
EVENTS = [visit(34 + n) for n in range(60)]
# Event e1 comes at the offsets 29 and 31.
REPEATED = [visit(34 + n, "e1" if n in (29, 31) else "") for n in range(90)]
E1 = '{"event_id":"e1"}'
ONCE = [
    (0, None, ["0:29"], {"rows": 69, "equal": 69, "open": 20}),
    # As the plan says of a mirror that begins at offset 30: repeats are found within twenty minutes of 10:03.
    (30, "10:23", [], {"rows": 20, "equal": 20, "open": 20, "warm_up": 49}),
]
WINDOW = "visits_closed_windows"


@pytest.mark.shows("stateful", c19_windows_that_a_start_cuts="not published")
def test_c19_what_a_start_within_a_window_cuts_is_neither_published_nor_compared(
    spark: SparkSession, settings: Settings
) -> None:
    pipeline = cuts.shipped(WINDOW)
    own = cuts.own_session(spark, pipeline)
    live = Job(own, settings, pipeline)
    live.read(EVENTS)
    # As the plan says of a mirror that begins at offset 30: the event at offset 29 was of 10:03.
    cut = Job(own, settings, pipeline, 2, {0: 30, 1: 0}, trusted_from=millis("10:03") + 1)
    cut.read(EVENTS[30:])
    counts = lambda job: {body["window_start"][11:16]: body["count"] for body in job.newest().values()}  # noqa: E731
    assert counts(live) == {"11:30": 6, "11:40": 10, "11:50": 10, "12:00": 10, "12:10": 10}
    assert counts(cut) == {"12:10": 10}
    assert differing(cuts.compared(live, cut)) == {"rows": 1, "equal": 1, "warm_up": 4}


@pytest.mark.shows("stateful", c19_windows_of_the_moved_start="equal")
def test_c19_from_the_moved_start_the_window_is_whole(spark: SparkSession, settings: Settings) -> None:
    pipeline = cuts.shipped(WINDOW)
    own = cuts.own_session(spark, pipeline)
    live = Job(own, settings, pipeline)
    live.read(EVENTS)
    moved = Job(own, settings, pipeline, 2, {0: 26, 1: 0}, trusted_from=millis("09:59") + 1)
    moved.read(EVENTS[26:])
    assert differing(cuts.compared(live, moved)) == {"rows": 2, "equal": 2, "warm_up": 3}


@pytest.mark.shows("stateful", **{"c19_e1_emitted_by_the_candidate_from_{start}": "{emitted}"})
@pytest.mark.parametrize(("start", "trusted", "emitted", "found"), one_in_all(ONCE))
def test_c19_an_event_is_not_emitted_twice_across_both_outputs(
    spark: SparkSession, settings: Settings, start: int, trusted: str | None, emitted: list[str], found: dict[str, int]
) -> None:
    pipeline = cuts.shipped("visits_deduplicated")
    own = cuts.own_session(spark, pipeline)
    live = Job(own, settings, pipeline)
    live.read(REPEATED)
    job = Job(own, settings, pipeline, 2, {0: start, 1: 0}, trusted_from=millis(trusted) + 1 if trusted else None)
    job.read(REPEATED[start:])
    assert [source for key, source in live.sources() if key == E1] == ["0:29"]
    assert [source for key, source in job.sources() if key == E1] == emitted
    assert differing(cuts.compared(live, job)) == found


def test_c19_without_its_warm_up_a_candidate_takes_the_second_copy_for_the_first(
    spark: SparkSession, settings: Settings
) -> None:
    pipeline = cuts.shipped("visits_deduplicated")
    job = Job(cuts.own_session(spark, pipeline), settings, pipeline, 2, {0: 30, 1: 0}, trusted_from=millis("10:03") + 1)
    job.read(REPEATED[30:])
    assert [source for key, source in job.sources() if key == E1] == ["0:31"]


@pytest.mark.shows("stateful", c36_window_that_no_event_closes="1 open, then 1 equal")
def test_c36_a_window_that_no_event_closes_is_open_and_no_difference(spark: SparkSession, settings: Settings) -> None:
    pipeline = cuts.shipped("visits_window_counter")
    own = cuts.own_session(spark, pipeline)
    live, candidate = Job(own, settings, pipeline), Job(own, settings, pipeline, 2)
    events = [visit(n) for n in range(10)]
    live.read(events[:3], events[3:7])
    candidate.read(events)
    found = cuts.compared(live, candidate)
    # One window of 7 events here and 10 there.
    assert differing(found) == {"open": 1}
    told = "nothing can be compared yet: 1 are open, and close when a record of later event time or offset comes"
    assert findings.judge(found, 7) == (lifecycle.ERROR, told)

    # The stated way to close it: a record whose event time is a delay beyond the window's end.
    live.read(events[7:], [visit(30)])
    candidate.read([visit(30)])
    assert live.watermark == candidate.watermark == millis("09:10")
    assert differing(cuts.compared(live, candidate)) == {"rows": 1, "equal": 1, "open": 1}


THE_BOOKS = [[0, 1, 2], [33, 34, 35], [66, 67, 68], [3, 4]]


@pytest.mark.shows("stateful", c36_records_late_in_live_and_candidate="2 and 0")
def test_c36_the_report_counts_the_records_that_each_job_left_out(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = cuts.shipped(WINDOW)
    own = cuts.own_session(spark, pipeline)
    live, candidate = Job(own, settings, pipeline), Job(own, settings, pipeline, 2)
    batches = [[visit(minute) for minute in batch] for batch in THE_BOOKS]
    live.read(*batches)
    candidate.read([event for batch in batches for event in batch])
    monkeypatch.setattr(late_counts, "Broker", lambda _: mirrored(live))
    jobs = (live.generation, candidate.generation)
    assert late_counts.late_records(own, settings, *jobs) == {f"{WINDOW}-g1": 2, f"{WINDOW}-g2": 0}


def mirrored(job: Job) -> fakes.FakeBroker:
    """Mirror what a job has read, and return a broker that holds it."""
    path = mirror.table_path(job.settings, job.pipeline.source_topic)
    mirror.create(job.spark, path)
    rows = job.spark.read.format("delta").load(job.feed)
    options = {"application": "m", "batch": 0, "metadata": ""}
    mirror.append(rows, path, fakes.TOPIC_ID, "2025-09-04", **options)
    end = {p: r.end for p, r in job.ranges[-1].items()}
    ranges = {p: OffsetRange(0, offset) for p, offset in end.items()}
    with writing(job.settings.registry_url) as connection:
        mirror_log.record(connection, job.pipeline.source_topic, Commit(1, fakes.TOPIC_ID, ranges, end, {}, 1))
    broker = fakes.FakeBroker()
    broker.described[job.pipeline.source_topic] = fakes.topic(dict.fromkeys(end, 0), end)
    return broker


@pytest.mark.shows("stateful", c13_possibly_repeated="70-79; 5 repeats counted")
def test_c13_a_driver_that_was_killed_within_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    settings = fakes.installation(tmp_path)
    live = fakes.generation()
    logs(Path(settings.generations) / live.job_id / "checkpoint", begun=8, committed=7)
    place = str(Path(settings.generations) / live.job_id / "checkpoint")
    last = checkpoint.last_committed(spark, place)
    assert (last, checkpoint.end_offsets(spark, place, last or 0)) == (6, {0: 70}), "the position to hand over from"
    assert cut_over.possibly_repeated(settings, live) == {0: OffsetRange(70, 80)}
    Path(place, "commits", "7").write_text("v1\n{}")
    assert total(cut_over.possibly_repeated(settings, live)) == 0, "it has drained"

    # 70 to 74 were written before the kill, and again with the whole batch.
    rows = [page(o, at=0) for o in range(75)] + [page(o, at=1) for o in range(70, 100)]
    found = comparison.compared_rows(
        located(spark, rows), located(spark, [page(o) for o in range(100)]), SIDES, HORIZON
    )
    assert (found.counts["equal"], found.counts["repeated"], found.counts["missing"]) == (100, 5, 0)


def logs(place: Path, begun: int, committed: int) -> None:
    """Write the logs of a query of which each batch reads ten offsets."""
    for name in ("offsets", "commits", "sources/0"):
        (place / name).mkdir(parents=True)
    (place / "sources" / "0" / "0").write_text('v1\n{"visits":{"0":0}}')
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
    for batch in range(begun):
        body = json.dumps({"visits": {"0": (batch + 1) * 10}})
        (place / "offsets" / str(batch)).write_text(f"v1\n{metadata}\n{body}")
    for batch in range(committed):
        (place / "commits" / str(batch)).write_text("v1\n{}")
