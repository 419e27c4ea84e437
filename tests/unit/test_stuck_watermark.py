"""A job whose watermark stands still is never shown as if nothing were open (case C36)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rewind.core import lifecycle
from rewind.core.model import Batch
from rewind.registry import generations, progress
from rewind.registry.database import writing
from rewind.views import metrics, status
from rewind.views.counters import Totals
from rewind.views.status import PipelineView, Status
from rewind.views.status_jobs import Jobs
from tests.support import fakes

JOB = fakes.generation().job_id
NOW = datetime.fromisoformat("2025-09-04T12:00")
CLOSED = datetime(2025, 9, 4, 6, 59, tzinfo=UTC)


class Away:
    """A broker that nobody asks."""

    known = False

    def topic(self, name):
        return None


@pytest.fixture
def connection(tmp_path):
    settings = fakes.installation(tmp_path)
    with writing(settings.registry_url) as made:
        generations.create(made, fakes.generation(state=lifecycle.CANDIDATE), None)
        yield made


def batch(connection, monkeypatch, number, watermark, ago):
    """Record a batch that closed results by a watermark, so long ago."""
    monkeypatch.setattr(progress, "now", lambda: NOW - ago)
    closing = int(watermark.timestamp() * 1000) if watermark else 0
    progress.record(connection, JOB, 1, Batch(number, {0: number}, {0: number + 1}, 1, NOW, 0, closing))


def jobs_of(connection):
    return Jobs(connection, NOW).by_pipeline(Away())["visits_converter"]


def watermark(connection):
    (job,) = jobs_of(connection)
    return job.watermark


@pytest.mark.shows("stateful", c36_stuck_watermark="shown since its last rise")
def test_c36_a_silent_source_leaves_the_watermark_stuck_since_its_last_rise(connection, monkeypatch):
    batch(connection, monkeypatch, 0, CLOSED - timedelta(minutes=5), timedelta(minutes=11))
    batch(connection, monkeypatch, 1, CLOSED, timedelta(minutes=10))
    # Records of the same event time and batches without records leave it where it is.
    batch(connection, monkeypatch, 2, CLOSED, timedelta(minutes=5))
    found = watermark(connection)
    assert (found.at, found.since, found.stuck) == (CLOSED, NOW - timedelta(minutes=10), True)
    (job,) = jobs_of(connection)
    assert job.note == (
        "watermark stuck since 2025-09-04T11:50:00.000Z at 2025-09-04T06:59:00.000Z: what ends later stays open until "
        "a record of later event time comes. No records come in: look at the producers; one record of the present time "
        "in each partition closes the rest"
    )
    assert status.plain(job)["watermark"] == {
        "at": "2025-09-04T06:59:00.000Z",
        "since": "2025-09-04T11:50:00.000Z",
        "stuck": True,
        "fed": False,
    }


def test_c36_records_without_later_event_time_are_told_from_a_silent_source(connection, monkeypatch):
    for number, ago in enumerate((10, 5, 0.5)):
        batch(connection, monkeypatch, number, CLOSED, timedelta(minutes=ago))
    assert (watermark(connection).stuck, watermark(connection).fed) == (True, True)
    assert jobs_of(connection)[0].note.endswith(
        "comes. Records come in, but none of later event time: fix the producers' clocks, or what logic.py takes as "
        "event time"
    )


def test_c36_it_is_in_the_metrics(connection, monkeypatch):
    batch(connection, monkeypatch, 0, CLOSED, timedelta(minutes=10))
    jobs = jobs_of(connection)
    found = Status(NOW, True, (), (PipelineView("visits_converter", True, jobs=jobs),), ())
    lines = metrics.exposition(found, Totals()).splitlines()
    labels = f'{{pipeline="visits_converter",job="{JOB}",state="candidate"}}'
    assert f"rewind_job_watermark_stuck{labels} 1" in lines
    assert f"rewind_job_watermark_timestamp_seconds{labels} {CLOSED.timestamp()}" in lines


def test_c36_a_watermark_that_moves_is_not_stuck(connection, monkeypatch):
    batch(connection, monkeypatch, 0, CLOSED, timedelta(minutes=10))
    batch(connection, monkeypatch, 1, CLOSED + timedelta(minutes=5), timedelta(seconds=60))
    found = watermark(connection)
    assert (found.stuck, found.told()) == (False, "")
    assert jobs_of(connection)[0].note == ""


def test_a_job_without_state_has_none(connection, monkeypatch):
    assert watermark(connection) is None
    batch(connection, monkeypatch, 0, None, timedelta(minutes=10))
    assert watermark(connection) is None
