"""A new installation begins with the next tick of its schedules, not with what was due before it was made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pendulum
import pytest
from airflow.timetables import interval, trigger
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable
from rewind_airflow import nights, schedules

from rewind.runtime import installation

MADE = datetime(2026, 3, 1, 12, 34, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def next_run(table, start, at, monkeypatch, last=None):
    """Return when the next run of a DAG is due, as a scheduler works it out at an instant."""
    for module in (trigger, interval):
        monkeypatch.setattr(module, "utcnow", lambda: pendulum.instance(at), raising=False)
    restriction = TimeRestriction(earliest=pendulum.instance(start), latest=None, catchup=False)
    info = table.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
    return nights.plain(info.run_after)


def cron(expression):
    return CronTriggerTimetable(expression, timezone="UTC")


@pytest.mark.parametrize("after", [MINUTE, 10 * MINUTE, 25 * MINUTE])
def test_a_new_installation_waits_for_the_next_tick(after, monkeypatch):
    at = MADE + after
    hourly = next_run(cron("0 * * * *"), MADE, at, monkeypatch)
    nightly = next_run(cron("30 2 * * *"), MADE, at, monkeypatch)
    replay = next_run(nights.timetable({}), nights.first(MADE, {}), at, monkeypatch)
    assert hourly == datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert nightly == replay == datetime(2026, 3, 2, 2, 30, tzinfo=UTC)


def test_the_first_night_is_the_one_in_which_the_installation_was_made():
    assert nights.first(MADE, {}) == datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
    assert nights.first(MADE, {nights.ZONE: "Europe/Paris"}) == datetime(2026, 3, 1, 1, 30, tzinfo=UTC)


def test_a_start_in_the_past_would_make_up_for_the_newest_tick_at_once(monkeypatch):
    at, past = MADE + MINUTE, installation.BEFORE_ALL
    assert next_run(cron("0 * * * *"), past, at, monkeypatch) < at
    assert next_run(nights.timetable({}), nights.first(past, {}), at, monkeypatch) < at


def test_an_installation_that_was_away_makes_up_for_its_newest_tick(monkeypatch):
    last = DataInterval.exact(pendulum.instance(MADE + HOUR - 34 * MINUTE))
    at = MADE + 3 * DAY
    found = next_run(cron("0 * * * *"), MADE, at, monkeypatch, last)
    assert found == datetime(2026, 3, 4, 12, tzinfo=UTC)


def test_the_first_record_of_when_it_was_made_stays(make_settings, monkeypatch):
    settings = make_settings()
    assert installation.since(settings) == installation.BEFORE_ALL
    for at in (MADE, MADE + DAY):
        installation.begin(settings, at)
    assert installation.since(settings) == MADE
    assert schedules.begin(settings.environment()) == MADE
    assert schedules.begin({}) == installation.BEFORE_ALL
