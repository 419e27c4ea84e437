"""The schedule of nightly replays around clock changes and gaps, and the task that replays one."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pendulum
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.timetables.base import TimeRestriction
from rewind_airflow import nights
from rewind_airflow.notify import Drifted

from rewind.core import lifecycle
from rewind.core import nights as rules
from rewind.core.model import Generation
from rewind.core.nights import Known, Night, Sample
from rewind.core.offsets import OffsetRange, total
from rewind.registry import generations
from rewind.registry import nightly_replays as log
from rewind.registry.database import writing
from rewind.runtime.drivers import bundle

PARIS = {nights.ZONE: "Europe/Paris", nights.SCHEDULE: "30 2 * * *"}
MINUTE = timedelta(minutes=1)


def intervals(first: str, last: str) -> list[tuple[datetime, datetime]]:
    """Return the intervals that a real scheduler would run between two local dates, by its own timetable."""
    table = nights.timetable(PARIS)
    begin, end = (pendulum.parse(day, tz="Europe/Paris") for day in (first, last))
    found, before = [], None
    while True:
        restriction = TimeRestriction(earliest=begin, latest=None, catchup=True)
        info = table.next_dagrun_info(last_automated_data_interval=before, restriction=restriction)
        if info.data_interval.end > end:
            return found
        before = info.data_interval
        found.append((nights.plain(before.start), nights.plain(before.end)))


@pytest.mark.parametrize(
    ("first", "last", "hours"),
    [("2025-03-28", "2025-04-01", {23, 24}), ("2025-10-24", "2025-10-28", {24, 25})],
)
def test_c40_each_record_is_replayed_once_around_a_clock_change(first, last, hours):
    spans = intervals(first, last)
    assert len(spans) == 3
    assert {(end - start) / timedelta(hours=1) for start, end in spans} == hours
    assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
    # One record a minute, from a day before the first interval on.
    origin = spans[0][0].astimezone(UTC) - timedelta(days=1)
    before = lambda instant: {0: int((instant - origin) / MINUTE)}  # noqa: E731
    known: list[Known] = []
    for start, end in spans:
        night = Night("visits", start, end, "", Sample())
        ranges = rules.range_of(night, known, before(start), before(end), {0: 100_000})
        assert total(ranges) == (end - start) / MINUTE
        known.append(Known(start, end, ranges))
    replayed = [offset for each in known for offset in range(each.ranges[0].start, each.ranges[0].end)]
    assert replayed == list(range(before(spans[0][0])[0], before(spans[-1][1])[0]))


def test_c40_a_paused_week_is_listed_night_by_night():
    spans = intervals("2025-10-20", "2025-10-31")
    gone = nights.missed(nights.timetable(PARIS), spans[1][1], spans[8][0])
    assert gone == spans[2:8]
    assert nights.missed(nights.timetable(PARIS), spans[7][1], spans[8][0]) == []
    assert nights.missed(nights.timetable(PARIS), None, spans[8][0]) == []


def test_missed_nights_are_listed_up_to_a_bound():
    table = nights.timetable({})
    long_ago, today = datetime(2020, 1, 1, 2, 30, tzinfo=UTC), datetime(2025, 1, 1, 2, 30, tzinfo=UTC)
    gone = nights.missed(table, long_ago, today)
    assert len(gone) == nights.MOST_MISSED
    assert gone[-1][1] == today


def test_an_installation_may_never_replay_by_itself():
    assert nights.schedule({nights.SCHEDULE: nights.NEVER}) is None
    assert nights.schedule({}) == nights.timetable({})


START = datetime(2025, 9, 4, 2, 30, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def night(context):
    """The context of the run of one night."""
    context |= {"data_interval_start": START, "data_interval_end": START + DAY}
    context["params"] = {"partitions": None, "share": 1.0}
    return context


@pytest.fixture
def live(installation, monkeypatch, tmp_path):
    """Make `visits-g1` live, its code frozen: `live()`, or without the main of nightly replays."""

    def make(main=True):
        settings = installation
        if not main:
            shutil.copytree(installation.jobs, tmp_path / "jobs")
            (tmp_path / "jobs" / "nightly.py").unlink()
            settings = replace(installation, jobs=tmp_path / "jobs")
        code = bundle.build(settings, "visits")
        folder = installation.generations / "visits-g1" / "bundle"
        bundle.freeze(code, folder)
        frozen = {"config": {"source_topic": "clicks", "output_topic": "visits_out"}}
        outputs = ("visits_out-g1", "visits_out-g1-dead")
        made = Generation("visits-g1", "visits", lifecycle.CANDIDATE, "t", code.hash, frozen, {0: 0}, {0: 0}, *outputs)
        with writing(installation.registry_url) as connection:
            generations.create(connection, made, None)
            generations.set_first(connection, "visits-g1")
        return folder

    return make


def asked(sample=None):
    return Night("visits", START, START + DAY, "2025-09-04", sample or Sample())


def recorded(installation, state, reason="", fields=None, sample=None):
    """Record how a night ended, as its main does."""
    with writing(installation.registry_url) as connection:
        begun = log.begin(connection, asked(sample), {0: OffsetRange(0, 9)}, "r1", "visits-g1")
        log.finish(connection, begun.replay_id, state, reason, {"rows": 9}, fields or {}, None)


def replay():
    return nights.NightSubmit(task_id="replay", pipeline="visits")


def test_nothing_deployed_is_nothing_to_replay(installation, night):
    with pytest.raises(AirflowSkipException, match="nothing is deployed"):
        replay().execute(night)


def test_a_night_is_submitted_with_the_live_jobs_code_and_those_that_were_missed(
    installation, night, live, spark_submit
):
    submits, folder = spark_submit(), live()
    with writing(installation.registry_url) as connection:
        three = Night("visits", START - 3 * DAY, START - 2 * DAY, "2025-09-01", Sample())
        log.miss(connection, three, {0: OffsetRange(0, 5)}, "r0", "no run came")
    night["params"] = {"partitions": [1, 0], "share": 0.5}
    recorded(installation, rules.CONSISTENT, sample=Sample((0, 1), 0.5))
    replay().execute(night)
    arguments = eval(submits())
    main = arguments.index(f"{folder}/main/nightly.py")
    given = dict(zip(arguments[main + 1 :: 2], arguments[main + 2 :: 2], strict=True))
    assert json.loads(given.pop("--sample")) == {"partitions": [0, 1], "share": 0.5}
    assert json.loads(given.pop("--missed")) == [
        [(START + n * DAY).isoformat(), (START + (n + 1) * DAY).isoformat()] for n in (-2, -1)
    ]
    assert given == {
        "--job-id": "visits-g1",
        "--start": "2025-09-04T02:30:00+00:00",
        "--end": "2025-09-05T02:30:00+00:00",
        "--zone": "UTC",
        "--run-id": "r1",
    }


def test_a_run_without_a_date_takes_the_newest_night_that_is_over(installation, night, live, spark_submit):
    submits = spark_submit()
    live()
    night |= {"data_interval_start": None, "data_interval_end": None}
    night["dag_run"] = SimpleNamespace(conf=None, run_after=START + 1.5 * DAY)
    replay().execute(night)
    arguments = eval(submits())
    assert arguments[arguments.index("--start") + 1] == "2025-09-04T02:30:00+00:00"


def test_a_drift_fails_at_once_and_is_told_as_one(installation, night, live, spark_submit):
    spark_submit()
    live()
    recorded(installation, rules.DRIFTED, "9 changed", {"changed": {"page": 9, "kind": 2}})
    with pytest.raises(Drifted, match=r"visits 2025-09-04 \(all partitions\): drifted in kind, page: 9 changed"):
        replay().execute(night)


@pytest.mark.parametrize("state", [rules.CONSISTENT, rules.NOTHING])
def test_other_answers_end_green(installation, night, live, spark_submit, state):
    spark_submit()
    live()
    recorded(installation, state)
    replay().execute(night)


def test_what_was_not_replayed_is_skipped(installation, night, live, spark_submit):
    spark_submit()
    live()
    recorded(installation, rules.NOT_REPLAYED, "nothing of it stands in the output")
    with pytest.raises(AirflowSkipException, match="nothing of it stands in the output"):
        replay().execute(night)


def test_code_from_before_there_were_nights_is_told_as_not_replayed(installation, night, live, spark_submit):
    submits = spark_submit()
    live(main=False)
    with pytest.raises(AirflowSkipException, match="frozen before there were nightly replays"):
        replay().execute(night)
    assert submits() == ""
    with writing(installation.registry_url) as connection:
        found = log.find(connection, asked())
    assert (found.state, found.attempt, found.job_id) == (rules.NOT_REPLAYED, 0, None)


def test_a_night_that_cannot_be_answered_fails(installation, night, live, spark_submit):
    spark_submit(exit_code=64)
    live()
    with pytest.raises(AirflowFailException, match="exit code 64"):
        replay().execute(night)


def test_c27_another_sample_of_a_date_is_another_report(installation):
    """A clear with other parameters, which Airflow gives to the run, never overwrites what was answered before."""
    recorded(installation, rules.CONSISTENT, sample=Sample((0,)))
    recorded(installation, rules.DRIFTED, "1 changed", sample=Sample((1,)))
    with writing(installation.registry_url) as connection:
        found = {night.sample.partitions: night for night in log.newest(connection, 10)}
        whole = log.find(connection, asked())
    assert {partitions: (night.state, night.attempt) for partitions, night in found.items()} == {
        (0,): (rules.CONSISTENT, 1),
        (1,): (rules.DRIFTED, 1),
    }
    assert len({night.replay_id for night in found.values()}) == 2
    assert whole is None


def test_a_night_that_died_is_told_by_the_next(installation):
    with writing(installation.registry_url) as connection:
        died = log.begin(connection, asked(), {0: OffsetRange(0, 9)}, "r1", "visits-g1")
        later = Night("visits", START + DAY, START + 2 * DAY, "2025-09-05", Sample())
        begun = log.begin(connection, later, {0: OffsetRange(9, 12)}, "r2", "visits-g1")
        found = log.read(connection, died.replay_id)
    assert (found.state, found.attempt) == (rules.ERROR, 1)
    assert "without an answer" in found.reason
    assert (begun.state, begun.replay_id) == (rules.RUNNING, "visits-n2")
