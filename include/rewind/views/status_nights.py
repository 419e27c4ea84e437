"""The part of the view that shows nightly replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from rewind.core.nights import NOT_REPLAYED
from rewind.registry import nightly_replays
from rewind.registry.nightly_replays import Replayed
from rewind.runtime.evidence_page import INFORMING

STRIP = 14
"""Nights of a pipeline that are shown beside it."""


@dataclass(frozen=True)
class NightView:
    """One night.

    Attributes:
        replay_id: Its id, also the name of its evidence's folder.
        pipeline: Of which pipeline.
        label: Its date.
        state: One of `core.nights`.
        sample: Which records were asked for, in words.
        job_id: The job that was replayed; None for a night that was missed.
        offsets: Source offsets of it.
        rows: Rows that were compared.
        different: Rows that differ, in whatever way.
        differing: Rows by the field in which they differ.
        reason: Why it is not consistent.
        run_id: The Airflow run.
        start_at: First instant of its interval, UTC.
        end_at: Instant after it, UTC.
        ended_at: When it was answered, UTC.
        report: Name of its newest report; empty when there is none.
    """

    replay_id: str
    pipeline: str
    label: str
    state: str
    sample: str
    job_id: str | None
    offsets: int
    rows: int
    different: int
    differing: Mapping[str, int]
    reason: str
    run_id: str
    start_at: datetime
    end_at: datetime
    ended_at: datetime | None
    report: str

    def told(self) -> str:
        """Return it in one line, for people."""
        columns = f" in {', '.join(sorted(self.differing))}" if self.differing else ""
        return f"{self.label} {self.state.replace('_', ' ')}{columns}" + (f": {self.reason}" if self.reason else "")


def nights_by_pipeline(connection: Connection, pipeline: str = "") -> dict[str, tuple[NightView, ...]]:
    """Return the newest nights of each pipeline, oldest first."""
    found = nightly_replays.newest_of_each(connection, STRIP, pipeline)
    return {name: tuple(night_of(night) for night in those) for name, those in found.items()}


def night_of(night: Replayed) -> NightView:
    """Return a recorded night as it is shown."""
    differing: dict[str, int] = {}
    for fields in night.fields.values():
        for name, count in fields.items():
            differing[name] = differing.get(name, 0) + count
    return NightView(
        replay_id=night.replay_id,
        pipeline=night.pipeline,
        label=night.label,
        state=night.state,
        sample=night.sample.told(),
        job_id=night.job_id if night.attempt else None,
        offsets=night.offsets,
        rows=night.counts.get("rows", 0),
        different=sum(count for name, count in night.counts.items() if name not in INFORMING),
        differing=differing,
        reason=night.reason,
        run_id=night.run_id,
        start_at=night.start_at,
        end_at=night.end_at,
        ended_at=night.ended_at,
        report=f"{night.report}.html" if night.attempt and night.ended_at else "",
    )


def last_answer(found: tuple[NightView, ...]) -> NightView | None:
    """Return the newest night that somebody looked at."""
    return next((night for night in reversed(found) if night.state != NOT_REPLAYED), None)
