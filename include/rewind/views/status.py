"""A view of the state: one value read from registry, declared pipelines and broker, for people and machines.

Nothing here changes anything, and nothing that cannot be reached is an error: it is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from rewind.core import lifecycle, times
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import TopicReader
from rewind.core.settings import Settings
from rewind.declared import pipelines
from rewind.declared.pipelines import Broken
from rewind.registry import plannings, schema
from rewind.registry.database import now as registry_now
from rewind.registry.plannings import Planning
from rewind.registry.snapshot import snapshot
from rewind.views import rewind_rows
from rewind.views.status_garbage import Garbage, Leftovers
from rewind.views.status_jobs import Ends, Job, Jobs
from rewind.views.status_mirrors import Mirror, Mirrors
from rewind.views.status_nights import NightView, nights_by_pipeline
from rewind.views.status_rewinds import Rewinds, RewindView

RECENT_REWINDS = 5


@dataclass(frozen=True)
class Deleted:
    """One line of the deletions ledger."""

    job_id: str
    kind: str
    name: str
    result: str
    detail: str
    at: datetime


@dataclass(frozen=True)
class PipelineView:
    """One pipeline, declared or deployed or both.

    Attributes:
        name: Its name.
        declared: Whether its folder can be used.
        problem: Why its folder cannot be used; empty when it can.
        source_topic: The topic it reads; empty when neither its folder nor the registry tells.
        live: Its live job; None before the first deploy.
        epoch: Epoch of the live pointer, 0 before the first deploy.
        jobs: Its generations and repairs, oldest first.
        rewinds: Its active rewind and the last ones, newest first.
        deletions: What has been deleted of it, oldest first.
        garbage: What is still to be deleted, and when.
        nights: Its newest nightly replays, oldest first.
        planning: Its rewinds that have no plan yet, oldest first.
    """

    name: str
    declared: bool
    problem: str = ""
    source_topic: str = ""
    live: str | None = None
    epoch: int = 0
    jobs: tuple[Job, ...] = ()
    rewinds: tuple[RewindView, ...] = ()
    deletions: tuple[Deleted, ...] = ()
    garbage: tuple[Garbage, ...] = ()
    nights: tuple[NightView, ...] = ()
    planning: tuple[Planning, ...] = ()


@dataclass(frozen=True)
class Status:
    """The whole state at one instant.

    Attributes:
        at: When it was read, UTC.
        registry_read: Whether the registry could be read, or is known to be empty.
        problems: What could not be read, one plain sentence each.
        pipelines: All pipelines, by name.
        mirrors: The mirrors, by topic.
    """

    at: datetime
    registry_read: bool
    problems: tuple[str, ...]
    pipelines: tuple[PipelineView, ...]
    mirrors: tuple[Mirror, ...]

    def pipeline(self, name: str) -> PipelineView:
        """Return one pipeline.

        Raises:
            RefusedError: It is neither declared nor deployed.
        """
        found = next((p for p in self.pipelines if p.name == name), None)
        if found is None:
            known = ", ".join(p.name for p in self.pipelines) or "none"
            raise RefusedError("pipeline", f"{name!r} is unknown", f"Known are: {known}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON takes it: instants as ISO text, partitions as text keys, whole numbers exact."""
        body = plain(self)
        assert isinstance(body, dict)
        return body


@dataclass(frozen=True)
class Wanted:
    """What is read: one pipeline or all (empty), with or without collected jobs, and how many ended rewinds."""

    pipeline: str
    collected: bool
    recent: int


def read(
    settings: Settings,
    broker: TopicReader | None,
    now: datetime | None = None,
    *,
    pipeline: str = "",
    collected: bool = True,
    recent: int = RECENT_REWINDS,
) -> Status:
    """Return the state of an installation.

    Args:
        settings: The installation.
        broker: Where Kafka's ends are read; None when it is known to be away.
        now: The instant that ages are counted to, UTC without zone as the registry stores it.
        pipeline: The one pipeline to read; empty for all.
        collected: Whether jobs are read that have been collected, of which an old pipeline has many.
        recent: How many ended rewinds of each pipeline are read.
    """
    now = now or registry_now()
    declared, broken = pipelines.load_all(settings.pipelines)
    known = {p.name: PipelineView(p.name, True, source_topic=p.source_topic) for p in declared}
    known |= {b.name: _broken(b) for b in broken}
    try:
        with snapshot(settings.registry_url) as connection:
            held = _Held(connection, Wanted(pipeline, collected, recent), now, settings.registry_url)
    except (RefusedError, RetryError) as problem:
        read_or_empty = isinstance(problem, RefusedError)
        return Status(now, read_or_empty, (str(problem),), tuple(known[name] for name in sorted(known)), ())
    ends = Ends(broker, settings.bootstrap)
    known |= {p.name: p for p in held.deployed(known, ends)}
    mirrors = held.mirrors(ends)
    return Status(now, True, ends.problems, tuple(known[name] for name in sorted(known)), mirrors)


def plain(value: Any) -> Any:
    """Return any value of this module in the types of JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return times.format_instant(value.replace(tzinfo=UTC) if value.tzinfo is None else value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, Path) else value


def _broken(found: Broken) -> PipelineView:
    return PipelineView(found.name, False, problem=found.problem)


class _Held:
    """All that the registry holds of what is wanted, read at once; Kafka and processes are looked at afterwards."""

    def __init__(self, connection: Connection, wanted: Wanted, now: datetime, url: str) -> None:
        """Read it, with as many queries for all pipelines as for one."""
        self._jobs = Jobs(connection, now, pipeline=wanted.pipeline, collected=wanted.collected)
        shown = rewind_rows.shown(connection, wanted.recent, wanted.pipeline)
        self._rewinds = Rewinds(connection, [rewind for found in shown.values() for rewind in found], now)
        self._leftovers, self._gone = Leftovers(connection, now), _deletions(connection, wanted)
        self._nights = nights_by_pipeline(connection, wanted.pipeline)
        self._planning = plannings.being_made(connection, wanted.pipeline)
        self._pointers = {row.pipeline: row for row in connection.execute(select(schema.pointers))}
        self._names = _deployed_names(connection, wanted.pipeline)
        self._mirrors = Mirrors(connection, now, url)

    def mirrors(self, ends: Ends) -> tuple[Mirror, ...]:
        """Return the mirrors."""
        return self._mirrors.seen(ends)

    def deployed(self, known: Mapping[str, PipelineView], ends: Ends) -> list[PipelineView]:
        """Return what is deployed, given what is declared."""
        jobs = self._jobs.by_pipeline(ends)
        rewinds = self._rewinds.views(jobs)
        return [self._view(name, known.get(name), jobs.get(name, ()), rewinds.get(name, ())) for name in self._names]

    def _view(
        self, name: str, declared: PipelineView | None, jobs: tuple[Job, ...], rewinds: tuple[RewindView, ...]
    ) -> PipelineView:
        pointer = self._pointers.get(name)
        return PipelineView(
            name=name,
            declared=declared is not None and declared.declared,
            problem="its folder is gone" if declared is None else declared.problem,
            source_topic=jobs[-1].source_topic if jobs else "",
            live=None if pointer is None else pointer.job_id,
            epoch=0 if pointer is None else pointer.epoch,
            jobs=jobs,
            rewinds=rewinds,
            deletions=tuple(self._gone.get(name, ())),
            garbage=self._leftovers.of(jobs),
            nights=self._nights.get(name, ()),
            planning=tuple(one for one in self._planning if one.pipeline == name),
        )


def _deployed_names(connection: Connection, pipeline: str) -> list[str]:
    table = schema.generations
    query = select(table.c.pipeline).distinct().order_by(table.c.pipeline)
    return list(connection.execute(query.where(table.c.pipeline == pipeline) if pipeline else query).scalars())


def _deletions(connection: Connection, wanted: Wanted) -> dict[str, list[Deleted]]:
    table, owners = schema.deletions, schema.generations
    query = select(owners.c.pipeline, table).join(table, table.c.job_id == owners.c.job_id).order_by(table.c.id)
    if wanted.pipeline:
        query = query.where(owners.c.pipeline == wanted.pipeline)
    if not wanted.collected:
        query = query.where(owners.c.state != lifecycle.COLLECTED)
    found: dict[str, list[Deleted]] = {}
    for r in connection.execute(query):
        found.setdefault(r.pipeline, []).append(Deleted(r.job_id, r.kind, r.name, r.result, r.detail, r.at))
    return found
