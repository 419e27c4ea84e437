"""What a night leaves to the next one: the newest answered night of a job whose results may count any record."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rewind.core.nights import Night, Sample
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import UNBOUNDED
from rewind.registry import nightly_replays
from rewind.registry.database import writing
from rewind.steps.feed import feeding
from rewind.steps.replays.night_line import Line
from rewind.steps.replays.night_report import Answer
from tests.support import fakes

FIRST, DAY = datetime(2025, 9, 4, tzinfo=UTC), timedelta(days=1)
ENDLESS = replace(fakes.PIPELINE, stateful=True, state_horizon=UNBOUNDED)
LIVE = fakes.generation(ENDLESS)
SOME = {0: OffsetRange(0, 10)}


@pytest.fixture
def settings(tmp_path):
    return fakes.installation(tmp_path)


def night(n: int) -> Night:
    return Night(LIVE.pipeline, FIRST + n * DAY, FIRST + (n + 1) * DAY, "", Sample())


def lived(settings, n, state="consistent", compared=SOME, live=LIVE):
    """Live through a night, and return what its line leaves to the next one."""
    line = Line(settings, live, night(n))
    with writing(settings.registry_url) as connection:
        recorded = nightly_replays.begin(connection, night(n), compared, "r1", live.job_id)
    return line.leave(recorded, Answer(state=state, compared=compared))


@pytest.mark.parametrize("state", ["consistent", "drifted", "nothing"])
def test_an_answered_night_is_kept_without_the_records_of_its_feed(settings, state):
    feed = Path(feeding.feed_path(settings, "visits_converter-n1"))
    (feed / "_delta_log").mkdir(parents=True)
    (feed / "part-0.parquet").touch()
    (feed / "_delta_log" / "1.json").touch()
    assert lived(settings, 0, state) == "visits_converter-n1"
    assert [path.name for path in sorted(feed.rglob("*"))] == ["_delta_log", "1.json"]


def test_the_newest_night_is_kept_whatever_comes_after_it(settings):
    assert lived(settings, 1) == "visits_converter-n1"
    assert lived(settings, 2) == "visits_converter-n2"
    assert lived(settings, 3, "nothing", compared={}) == "visits_converter-n2", "no record came"
    assert lived(settings, 4, "error") == "visits_converter-n2", "it had taken nothing up"
    assert lived(settings, 0) == "visits_converter-n2", "an older night"


def test_of_the_same_night_nothing_is_of_use(settings):
    lived(settings, 0)
    assert Line(settings, LIVE, night(0)).kept is None
    assert Line(settings, LIVE, night(1)).kept == "visits_converter-n1"


@pytest.mark.parametrize(
    "live",
    [
        fakes.generation(),
        fakes.generation(replace(ENDLESS, state_horizon="PT30M")),
        replace(LIVE, frozen={**LIVE.frozen, "state": ["Aggregate a", "TransformWithStateInPySpark b"]}),
    ],
)
def test_other_jobs_keep_nothing(settings, live):
    assert lived(settings, 0, live=live) is None


def test_what_a_job_before_the_live_one_kept_is_of_no_use(settings):
    lived(settings, 0)
    assert Line(settings, replace(LIVE, job_id="visits_converter-g2"), night(1)).kept is None
