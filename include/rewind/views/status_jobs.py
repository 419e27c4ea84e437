"""The part of the view that shows generations and repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, select, true

from rewind.core import lifecycle
from rewind.core.errors import DeniedError, RefusedError, RetryError
from rewind.core.model import Topic, TopicReader, held_back
from rewind.core.offsets import Ranges, Vector, behind
from rewind.registry import progress, schema
from rewind.registry.database import vector_from_json
from rewind.runtime.drivers.driver_state import ENDED, Driver, Drivers
from rewind.views.status_watermark import Watermark, watermarks_of

RATE_WINDOW = timedelta(seconds=60)
RATE_BATCHES = 100

_table = schema.generations
# What is frozen is long, and little of it is shown.
_COLUMNS = [column for column in _table.c if column.name != "frozen"]
_FROZEN = [_table.c.frozen[("config", name)].as_string().label(name) for name in ("source_topic", "isolation")]


@dataclass(frozen=True)
class Job:
    """A generation or a repair.

    Attributes:
        job_id: Its id.
        state: candidate, live, standby, retired, collected, aborted; staging or merged for a repair.
        bundle: Hash of its frozen code.
        source_topic: The topic it reads.
        output_topic: Where it writes.
        dead_letter_topic: Where it writes what it rejects.
        start: First offset of its own history, per partition.
        handoff: First offset its stream reads; None until it is fixed.
        position: Next offset its stream reads.
        lag: Offsets between position and the end of what was written; None when that is unknown.
        rate: Records a second over the last minute; None before the first batch.
        last_batch_at: When its last batch was committed, UTC.
        driver: Its driver.
        grace_until: Until when it is kept for a rollback, UTC.
        note: What a reader should know besides, such as a recreated topic, a paused DAG, a watermark that stands still.
        watermark: Of a pipeline with state, its watermark; None before the first one.
        held: Offsets that it cannot read yet, by partition: an open transaction holds them back; None when Kafka's
            ends are unknown.
    """

    job_id: str
    state: str
    bundle: str
    source_topic: str
    output_topic: str
    dead_letter_topic: str
    start: Vector
    handoff: Vector | None
    position: Vector
    lag: int | None
    rate: float | None
    last_batch_at: datetime | None
    driver: Driver
    grace_until: datetime | None
    note: str = ""
    watermark: Watermark | None = None
    held: Ranges | None = None


class Ends:
    """Kafka's ends, each topic asked once, none after the broker failed to answer."""

    def __init__(self, broker: TopicReader | None, address: str) -> None:
        """Keep the broker; None when it is known to be away."""
        self._broker = broker
        self._found: dict[str, Topic | None] = {}
        self.problems: tuple[str, ...] = (
            () if broker else (f"Kafka at {address} does not answer: its ends are unknown",)
        )

    def topic(self, name: str) -> Topic | None:
        """Return the topic, None when there is none, when it is not shown to us, or when the broker is away."""
        if self._broker is not None and name not in self._found:
            try:
                self._found[name] = self._broker.topic(name)
            except DeniedError as problem:
                self._found[name], self.problems = None, (*self.problems, str(problem))
            except (RefusedError, RetryError) as problem:
                self._broker, self.problems = None, (*self.problems, str(problem))
        return self._found.get(name)

    @property
    def known(self) -> bool:
        """Whether the broker answers."""
        return self._broker is not None


def _wanted(pipeline: str, collected: bool) -> ColumnElement[bool]:
    of_it = _table.c.pipeline == pipeline if pipeline else true()
    return of_it if collected else of_it & (_table.c.state != lifecycle.COLLECTED)


class Jobs:
    """What the registry holds of jobs, each table read once; Kafka is asked when the registry is let go."""

    def __init__(self, connection: Connection, now: datetime, *, pipeline: str = "", collected: bool = True) -> None:
        """Read the generations and repairs of a pipeline or of all, with those that have been collected or without."""
        wanted = _wanted(pipeline, collected)
        rows = select(*_COLUMNS, *_FROZEN).where(wanted).order_by(_table.c.created_at)
        self._rows = connection.execute(rows).all()
        mine = select(_table.c.job_id.label("owner")).where(wanted)
        self._newest = progress.newest_of(connection, mine)
        self._counts = progress.counts_since(connection, mine, now - RATE_WINDOW, RATE_BATCHES)
        going = mine.where(_table.c.state.not_in(ENDED))
        fed = {job for job, counts in self._counts.items() if any(rows for _, rows in counts)}
        self._watermarks = watermarks_of(connection, going, self._newest, fed, now)
        self._drivers = Drivers(connection, mine, now)
        self._now = now

    def by_pipeline(self, ends: Ends) -> dict[str, tuple[Job, ...]]:
        """Return them by pipeline, oldest first, each with how far it is behind Kafka's end."""
        found: dict[str, tuple[Job, ...]] = {}
        for row in self._rows:
            found[row.pipeline] = (*found.get(row.pipeline, ()), self._job(row, ends))
        return found

    def _job(self, row: Any, ends: Ends) -> Job:
        source, handoff = row.source_topic or "", None if row.handoff is None else vector_from_json(row.handoff)
        last, watermark = self._newest.get(row.job_id), self._watermarks.get(row.job_id)
        position = {**(handoff or {}), **(last.end if last else {})}
        lag, held, note = lag_of(position, row, ends, source)
        driver = self._drivers.of(row.job_id, row.state)
        return Job(
            job_id=row.job_id,
            state=row.state,
            bundle=row.bundle,
            source_topic=source,
            output_topic=row.output_topic,
            dead_letter_topic=row.dead_letter_topic,
            start=vector_from_json(row.start),
            handoff=handoff,
            position=position,
            lag=lag,
            rate=None if last is None else rate(self._counts.get(row.job_id, []), self._now),
            last_batch_at=None if last is None else last.at,
            driver=driver,
            grace_until=row.grace_until,
            note="; ".join(filter(None, (note, driver.paused, watermark.told() if watermark else ""))),
            watermark=watermark,
            held=held,
        )


def lag_of(position: Vector, row: Any, ends: Ends, source: str) -> tuple[int | None, Ranges | None, str]:
    """Return how many offsets a job lacks to the end of what was written, those held back from it, and what is told."""
    if row.state in ENDED or not position:
        return None, None, ""
    topic = ends.topic(source)
    if topic is None:
        return None, None, f"topic {source} is gone" if ends.known else ""
    if topic.id != row.topic_id:
        return None, None, f"topic {source} was recreated: it has id {topic.id}, not {row.topic_id}"
    # What reads uncommitted records waits for no transaction.
    held = {} if row.isolation == "read_uncommitted" else topic.held()
    return behind(position, topic.end()), held, "; ".join(held_back(held))


def rate(recent: Sequence[tuple[datetime, int]], now: datetime) -> float:
    """Return the records a second, from when the batches of the last minute were committed and their rows.

    The newest batch comes first. The oldest one only says when counting began; a stream that stands still fades to 0.
    """
    if len(recent) < 2:
        return 0.0
    seconds = (now - recent[-1][0]).total_seconds()
    return round(sum(rows for _, rows in recent[:-1]) / seconds, 1) if seconds > 0 else 0.0
