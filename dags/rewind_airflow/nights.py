"""When nights are, which of them were missed, and the task that replays one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pendulum
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException
from airflow.timetables.interval import CronDataIntervalTimetable

from rewind.core import nights as rules
from rewind.core.errors import RewindError
from rewind.core.model import Generation
from rewind.core.nights import Night
from rewind.core.settings import Settings
from rewind.declared import forms
from rewind.registry import generations, nightly_replays
from rewind.registry.database import reading, writing
from rewind.registry.nightly_replays import Replayed
from rewind.runtime.drivers import supervise
from rewind_airflow import links, run
from rewind_airflow.notify import Drifted
from rewind_airflow.reactions import reactions
from rewind_airflow.submits import Errand, RewindSubmit

SCHEDULE, ZONE = "REWIND_NIGHTLY_SCHEDULE", "REWIND_NIGHTLY_ZONE"
USUAL, NEVER = "30 2 * * *", "never"
"""Schedule of an installation that replays only when somebody asks."""
MOST_MISSED = 400
"""Nights that are listed as missed at once, newest first: more than a year of them."""
JOB = "nightly"

Interval = tuple[datetime, datetime]


def timetable(environment: Mapping[str, str] = os.environ) -> CronDataIntervalTimetable:
    """Return when nights are: intervals between the ticks of a cron expression, in a zone's own time.

    An installation that never replays by itself still has nights, for runs that are asked for.
    """
    chosen = environment.get(SCHEDULE) or USUAL
    cron = USUAL if chosen == NEVER else chosen
    return CronDataIntervalTimetable(cron, timezone=zone(environment))


def zone(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of the zone in which nights are counted."""
    return environment.get(ZONE) or "UTC"


def schedule(environment: Mapping[str, str] = os.environ) -> CronDataIntervalTimetable | None:
    """Return the schedule of the DAGs."""
    return None if environment.get(SCHEDULE) == NEVER else timetable(environment)


def first(since: datetime, environment: Mapping[str, str] = os.environ) -> datetime:
    """Return when the first night of an installation begins: it is the one in which the installation was made."""
    return plain(timetable(environment).infer_manual_data_interval(run_after=pendulum.instance(since)).end)


def missed(table: CronDataIntervalTimetable, since: datetime | None, until: datetime) -> list[Interval]:
    """Return the intervals between two instants, in order, none for no first instant: nights that had no run."""
    found: list[Interval] = []
    at = until
    while since is not None and at > since and len(found) < MOST_MISSED:
        interval = table.infer_manual_data_interval(run_after=pendulum.instance(at))
        if interval.start < since:
            break
        found.append((plain(interval.start), plain(interval.end)))
        at = interval.start
    return found[::-1]


def plain(instant: datetime) -> datetime:
    """Return an instant in UTC without what Airflow's own kind of it adds."""
    return datetime.fromtimestamp(instant.timestamp(), UTC)


class NightSubmit(RewindSubmit):
    """Replays one night of a pipeline by the code of its live job."""

    operator_extra_links = (links.PageLink(), links.EvidenceLink(), links.HistoryLink())

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Replay a pipeline; nights of one wait for each other."""
        super().__init__(job=JOB, pipeline=pipeline, max_active_tis_per_dag=1, **kwargs)

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Name the live job, the night, and those before it that had no run; the code is the live job's own."""
        night, live = self._night(context), self._live(settings)
        with reading(settings.registry_url) as connection:
            since = nightly_replays.last_end(connection, night.pipeline, night.start)
        code = supervise.frozen_bundle(settings, live.job_id, live.bundle)
        if not code.main(JOB).is_file():
            raise AirflowSkipException(_miss(settings, night, context["ti"].run_id, live.job_id))
        gone = [[start.isoformat(), end.isoformat()] for start, end in missed(timetable(), since, night.start)]
        arguments = [
            *("--job-id", live.job_id, "--start", night.start.isoformat(), "--end", night.end.isoformat()),
            *("--zone", zone(), "--sample", json.dumps(night.sample.to_json())),
            *("--run-id", context["ti"].run_id, "--missed", json.dumps(gone)),
        ]
        return Errand(arguments, code)

    def execute(self, context: Context) -> None:
        """Replay, and end as the night did: red by a drift, skipped where nothing was replayed."""
        try:
            super().execute(context)
        finally:
            # A link that cannot be told hides no error.
            with contextlib.suppress(RewindError):
                found = self._found(context)
                self.report = (found.replay_id, f"{found.report}.html") if found and found.attempt else ("", "")
        with reactions():
            found = self._found(context)
        if found is not None:
            self._end(found)

    def _found(self, context: Context) -> Replayed | None:
        # A zone is read from its file.
        night = self._night(context)
        with reading(run.settings().registry_url) as connection:
            return nightly_replays.find(connection, night)

    def _end(self, found: Replayed) -> None:
        told = f"{found.pipeline} {found.label} ({found.sample.told()}): {found.state}"
        self.log.info("%s %s; evidence: %s", told, found.reason, found.replay_id)
        if found.state == rules.DRIFTED:
            fields = sorted({name for columns in found.fields.values() for name in columns})
            where = f" in {', '.join(fields)}" if fields else ""
            raise Drifted(f"{told}{where}: {found.reason}. Evidence: {found.replay_id}, attempt {found.attempt}")
        if found.state == rules.NOT_REPLAYED:
            raise AirflowSkipException(f"{told}: {found.reason}")

    def _live(self, settings: Settings) -> Generation:
        assert self.pipeline is not None
        with reading(settings.registry_url) as connection:
            found = generations.live(connection, self.pipeline)
        if found is None:
            raise AirflowSkipException(f"{self.pipeline}: nothing is deployed")
        return found[0]

    def _night(self, context: Context) -> Night:
        assert self.pipeline is not None
        params = run.asked(context, forms.NIGHTLY)
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
        if start is None or end is None:
            # A run that somebody asked for without a date: the newest night that is over when it was asked for.
            asked = context["dag_run"].run_after
            interval = timetable().infer_manual_data_interval(run_after=pendulum.instance(asked))
            start, end = interval.start, interval.end
        start, end = plain(start), plain(end)
        sample = rules.sample_of({"partitions": params["partitions"] or [], "share": params["share"]})
        return Night(self.pipeline, start, end, rules.label_of(start, zone()), sample)


def _miss(settings: Settings, night: Night, run_id: str, job_id: str) -> str:
    """Record that a night cannot be replayed, and return why."""
    reason = f"{job_id} was frozen before there were nightly replays: rewind with same_code"
    with writing(settings.registry_url) as connection:
        nightly_replays.miss(connection, night, {}, run_id, reason)
    return reason
