"""What nightly replays were asked, which offsets they took and what they found: a row a night and sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from rewind.core import names, nights
from rewind.core.horizon import Frontier
from rewind.core.nights import Known, Night, Sample
from rewind.core.offsets import OffsetRange, Ranges, total
from rewind.registry import generations, observation, schema
from rewind.registry.database import now

_table = schema.nights
LEFT, KEPT = 1, 2
"""What stands of what a night wrote, 0 for nothing: perhaps something that nobody needs, or what the next night goes on
from."""


@dataclass(frozen=True)
class Replayed:
    """A recorded night.

    Attributes:
        replay_id: Its id, also the name of its evidence's folder.
        pipeline: Of which pipeline.
        label: Its date.
        start_at: First instant of its interval, UTC.
        end_at: Instant after it, UTC.
        sample: Which records were asked for.
        ranges: Its source offsets, of all partitions.
        state: One of `core.nights`.
        attempt: How often it was tried; 0 for a night that was missed.
        run_id: The Airflow run that tried it last.
        job_id: The job that was replayed.
        reason: Why it is not consistent.
        counts: Rows by class.
        fields: Rows by class and differing field.
        began_at: When it was tried last, UTC.
        ended_at: When that ended, UTC.
    """

    replay_id: str
    pipeline: str
    label: str
    start_at: datetime
    end_at: datetime
    sample: Sample
    ranges: Ranges
    state: str
    attempt: int
    run_id: str
    job_id: str | None
    reason: str
    counts: Mapping[str, int]
    fields: Mapping[str, Mapping[str, int]]
    began_at: datetime | None
    ended_at: datetime | None

    @property
    def asked(self) -> Ranges:
        """The source offsets of the partitions that were asked for."""
        return {p: r for p, r in self.ranges.items() if not self.sample.partitions or p in self.sample.partitions}

    @property
    def offsets(self) -> int:
        """How many those are."""
        return total(self.asked)

    @property
    def report(self) -> str:
        """Name of the newest attempt's evidence, without its suffix."""
        return f"night-{self.attempt}"


def known(connection: Connection, pipeline: str) -> list[Known]:
    """Return the nights of a pipeline that have a range, whatever became of them."""
    columns = (_table.c.start_at, _table.c.end_at, _table.c.ranges)
    rows = connection.execute(select(*columns).where(_table.c.pipeline == pipeline))
    return [
        Known(row.start_at.replace(tzinfo=UTC), row.end_at.replace(tzinfo=UTC), _ranges(row.ranges)) for row in rows
    ]


def last_end(connection: Connection, pipeline: str, until: datetime) -> datetime | None:
    """Return where the newest night of a pipeline ended that is over by an instant, UTC; None when there is none."""
    query = select(func.max(_table.c.end_at)).where(
        (_table.c.pipeline == pipeline) & (_table.c.end_at <= nights.utc(until))
    )
    found = connection.execute(query).scalar()
    return None if found is None else found.replace(tzinfo=UTC)


def begin(connection: Connection, night: Night, ranges: Ranges, run_id: str, job_id: str) -> Replayed:
    """Record an attempt at a night; one that is known keeps its range and its number.

    Nights of the pipeline that were left running are told as such: nobody will answer for them any more.
    """
    left = (_table.c.pipeline == night.pipeline) & (_table.c.state == nights.RUNNING)
    told = {"state": nights.ERROR, "reason": "its run ended without an answer: clear it to replay it again"}
    connection.execute(update(_table).where(left).values(**told, ended_at=now()))
    found = _insert(connection, night, ranges)
    values = {"state": nights.RUNNING, "attempt": found.attempt + 1, "run_id": run_id, "job_id": job_id}
    empty: dict[str, Any] = {"reason": "", "counts": {}, "fields": {}, "frontier": None, "ended_at": None}
    mine = _table.c.replay_id == found.replay_id
    connection.execute(update(_table).where(mine).values(**values, **empty, began_at=now(), scratch=LEFT))
    return read(connection, found.replay_id)


def miss(connection: Connection, night: Night, ranges: Ranges, run_id: str, reason: str) -> Replayed:
    """Record that a night was not replayed, unless there is one of its interval and sample."""
    found = _insert(connection, night, ranges)
    if found.attempt == 0:
        values = {"state": nights.NOT_REPLAYED, "run_id": run_id, "reason": reason}
        connection.execute(update(_table).where(_table.c.replay_id == found.replay_id).values(**values))
    return read(connection, found.replay_id)


def finish(
    connection: Connection,
    replay_id: str,
    state: str,
    reason: str,
    counts: Mapping[str, int],
    fields: Mapping[str, Mapping[str, int]],
    frontier: Frontier | None,
) -> None:
    """Record how a night ended."""
    far = None if frontier is None else observation.to_json(frontier)
    values = {"state": state, "reason": reason, "counts": dict(counts), "fields": dict(fields), "frontier": far}
    connection.execute(update(_table).where(_table.c.replay_id == replay_id).values(**values, ended_at=now()))


def keep(connection: Connection, replay_id: str) -> None:
    """Record that the next night may go on from what a night wrote."""
    connection.execute(update(_table).where(_table.c.replay_id == replay_id).values(scratch=KEPT))


def kept(connection: Connection, pipeline: str, job_id: str) -> Replayed | None:
    """Return the newest night of a live job that the next one may go on from, or None."""
    mine = (_table.c.pipeline == pipeline) & (_table.c.job_id == job_id) & (_table.c.scratch == KEPT)
    row = connection.execute(select(_table).where(mine).order_by(_table.c.end_at.desc()).limit(1)).one_or_none()
    return None if row is None else _replayed(row)


def cleaned(connection: Connection, replay_id: str) -> None:
    """Record that nothing is left of what a night wrote."""
    connection.execute(update(_table).where(_table.c.replay_id == replay_id).values(scratch=0))


def with_scratch(connection: Connection, pipeline: str = "") -> list[str]:
    """Return the nights, of one pipeline or all, of which something may be left or is kept."""
    mine = (_table.c.scratch != 0) & ((_table.c.pipeline == pipeline) if pipeline else True)
    return list(connection.execute(select(_table.c.replay_id).where(mine).order_by(_table.c.number)).scalars())


def tables_of(connection: Connection, replay_id: str) -> list[str]:
    """Return the names of the tables that a night wrote, or may have written."""
    job = read(connection, replay_id).job_id
    if job is None:
        return []
    base = generations.read(connection, job).declared.output_topic
    return [names.output_topic(base, replay_id), names.dead_letter_topic(base, replay_id)]


def frontier_before(connection: Connection, night: Night, job_id: str) -> Frontier | None:
    """Return how far the outputs were compared by the night before, if it was of the same job and sample."""
    joined = (_table.c.pipeline == night.pipeline) & (_table.c.end_at == nights.utc(night.start))
    same = (_table.c.sample_hash == night.sample.hash) & (_table.c.job_id == job_id)
    answered = _table.c.state.in_(sorted(nights.ANSWERED))
    query = select(_table.c.frontier).where(joined & same & answered).order_by(_table.c.start_at.desc()).limit(1)
    far = connection.execute(query).scalar_one_or_none()
    return None if far is None else observation.from_json(far)


def read(connection: Connection, replay_id: str) -> Replayed:
    """Return a recorded night."""
    return _replayed(connection.execute(select(_table).where(_table.c.replay_id == replay_id)).one())


def named(connection: Connection, replay_id: str) -> Replayed | None:
    """Return the night of an id, or None."""
    row = connection.execute(select(_table).where(_table.c.replay_id == replay_id)).one_or_none()
    return None if row is None else _replayed(row)


def find(connection: Connection, night: Night) -> Replayed | None:
    """Return the record of a night and its sample, or None."""
    row = connection.execute(select(_table).where(_same(night))).one_or_none()
    return None if row is None else _replayed(row)


def newest(connection: Connection, most: int, pipelines: Collection[str] | None = None) -> list[Replayed]:
    """Return the newest nights of some pipelines, or of all, newest first."""
    query = select(_table) if pipelines is None else select(_table).where(_table.c.pipeline.in_(pipelines))
    query = query.order_by(_table.c.end_at.desc(), _table.c.number.desc()).limit(most)
    return [_replayed(row) for row in connection.execute(query)]


def newest_of_each(connection: Connection, most: int, pipeline: str = "") -> dict[str, list[Replayed]]:
    """Return the newest nights by pipeline, oldest first, so many of each."""
    order = func.row_number().over(
        partition_by=_table.c.pipeline, order_by=(_table.c.end_at.desc(), _table.c.number.desc())
    )
    query = select(_table.c.replay_id, order.label("nth"))
    numbered = (query.where(_table.c.pipeline == pipeline) if pipeline else query).subquery()
    wanted = select(numbered.c.replay_id).where(numbered.c.nth <= most)
    found: dict[str, list[Replayed]] = defaultdict(list)
    rows = connection.execute(
        select(_table).where(_table.c.replay_id.in_(wanted)).order_by(_table.c.end_at, _table.c.number)
    )
    for row in rows:
        found[row.pipeline].append(_replayed(row))
    return found


def _insert(connection: Connection, night: Night, ranges: Ranges) -> Replayed:
    found = find(connection, night)
    if found is not None:
        return found
    mine = _table.c.pipeline == night.pipeline
    number = (connection.execute(select(func.max(_table.c.number)).where(mine)).scalar() or 0) + 1
    made = names.replay_id(night.pipeline, number)
    values: dict[str, Any] = {
        "replay_id": made,
        "pipeline": night.pipeline,
        "number": number,
        "label": night.label,
        "start_at": nights.utc(night.start),
        "end_at": nights.utc(night.end),
        "sample": night.sample.to_json(),
        "sample_hash": night.sample.hash,
        "ranges": {str(p): [r.start, r.end] for p, r in ranges.items()},
        "state": nights.NOT_REPLAYED,
        "attempt": 0,
        "run_id": "",
        "reason": "",
        "counts": {},
        "fields": {},
        "scratch": 0,
    }
    connection.execute(insert(_table).values(**values))
    return read(connection, made)


def _same(night: Night) -> Any:
    interval = (_table.c.start_at == nights.utc(night.start)) & (_table.c.end_at == nights.utc(night.end))
    return (_table.c.pipeline == night.pipeline) & interval & (_table.c.sample_hash == night.sample.hash)


def _ranges(body: Mapping[str, Any]) -> Ranges:
    return {int(p): OffsetRange(*bounds) for p, bounds in body.items()}


def _replayed(row: Row[Any]) -> Replayed:
    return Replayed(
        replay_id=row.replay_id,
        pipeline=row.pipeline,
        label=row.label,
        start_at=row.start_at,
        end_at=row.end_at,
        sample=nights.sample_of(row.sample),
        ranges=_ranges(row.ranges),
        state=row.state,
        attempt=row.attempt,
        run_id=row.run_id,
        job_id=row.job_id,
        reason=row.reason,
        counts=row.counts,
        fields=row.fields,
        began_at=row.began_at,
        ended_at=row.ended_at,
    )
