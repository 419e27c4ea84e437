"""The part of the view that shows generations, repairs and mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, select

from rewind.control import mirror_log, progress, proof_log, schema
from rewind.control.database import vector_from_json
from rewind.control.proof_log import Proven
from rewind.control.status_drivers import ENDED, Driver, driver_of
from rewind.control.status_watermark import Watermark, watermark_of
from rewind.core import lifecycle, names
from rewind.core.errors import RetryError
from rewind.core.offsets import Vector, behind
from rewind.core.world import Batch, BrokerReader, Topic

RATE_WINDOW = timedelta(seconds=60)
RATE_BATCHES = 100


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
        lag: Offsets between position and Kafka's end; None when that is unknown.
        rate: Records a second over the last minute; None before the first batch.
        last_batch_at: When its last batch was committed, UTC.
        driver: Its driver.
        grace_until: Until when it is kept for a rollback, UTC.
        note: What a reader should know besides, such as a recreated topic, or a watermark that stands still.
        watermark: Of a pipeline with state, its watermark; None before the first one.
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


@dataclass(frozen=True)
class Mirror:
    """The mirror of a topic.

    Attributes:
        topic: The topic.
        version: Newest version of its table; None before the first commit.
        records: Records it holds.
        position: Its committed source position.
        lag: Offsets between position and Kafka's end; None when that is unknown.
        committed_at: When it last committed, UTC.
        age_seconds: How long ago that was.
        driver: Its driver.
        proof: The newest proof of it; None before the first.
    """

    topic: str
    version: int | None
    records: int
    position: Vector
    lag: int | None
    committed_at: datetime | None
    age_seconds: float | None
    driver: Driver
    proof: Proven | None = None


class Ends:
    """Kafka's ends, each topic asked once, none after the broker failed to answer."""

    def __init__(self, broker: BrokerReader | None, address: str) -> None:
        """Keep the broker; None when it is known to be away."""
        self._broker = broker
        self._found: dict[str, Topic | None] = {}
        self.problems: tuple[str, ...] = (
            () if broker else (f"Kafka at {address} does not answer: its ends are unknown",)
        )

    def topic(self, name: str) -> Topic | None:
        """Return the topic, None when there is none or the broker is away."""
        if self._broker is not None and name not in self._found:
            try:
                self._found[name] = self._broker.topic(name)
            except RetryError as problem:
                self._broker, self.problems = None, (str(problem),)
        return self._found.get(name)

    @property
    def known(self) -> bool:
        """Whether the broker answers."""
        return self._broker is not None


def jobs_of(
    connection: Connection, pipeline: str, ends: Ends, now: datetime, *, collected: bool = True
) -> tuple[Job, ...]:
    """Return the generations and repairs of a pipeline, oldest first, those that have been collected on request."""
    table = schema.generations
    wanted = table.c.pipeline == pipeline
    if not collected:
        wanted &= table.c.state != lifecycle.COLLECTED
    rows = connection.execute(select(table).where(wanted).order_by(table.c.created_at))
    return tuple(_job(connection, row, ends, now) for row in rows.all())


def mirror_of(connection: Connection, topic: str, ends: Ends, now: datetime) -> Mirror:
    """Return the mirror of a topic, as far as it has come."""
    owner = names.mirror_owner(topic)
    driver = driver_of(connection, owner, "", now)
    topic_id = mirror_log.newest_id(connection, topic)
    if topic_id is None:
        return Mirror(topic, None, 0, {}, None, None, None, driver)
    made = mirror_log.commits(connection, topic, topic_id)
    position: Vector = {}
    for commit in made:
        position |= {p: max(r.end, position.get(p, 0)) for p, r in commit.ranges.items()}
    records = sum(n for commit in made for n in commit.counts.values())
    at = _committed_at(connection, topic, topic_id)
    found = ends.topic(topic)
    lag = behind(position, found.latest) if found is not None and found.id == topic_id else None
    proof = proof_log.newest(connection, topic, topic_id)
    return Mirror(topic, made[-1].version, records, position, lag, at, (now - at).total_seconds(), driver, proof)


def _job(connection: Connection, row: Row[Any], ends: Ends, now: datetime) -> Job:
    source = str(row.frozen.get("config", {}).get("source_topic", ""))
    handoff = None if row.handoff is None else vector_from_json(row.handoff)
    position = progress.position(connection, row.job_id, handoff)
    batches = progress.recent(connection, row.job_id, RATE_BATCHES)
    lag, note = _lag(position, row, ends, source)
    watermark = None if row.state in ENDED else watermark_of(connection, row.job_id, now)
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
        rate=rate(batches, now),
        last_batch_at=batches[0].at if batches else None,
        driver=driver_of(connection, row.job_id, row.state, now),
        grace_until=row.grace_until,
        note="; ".join(filter(None, (note, watermark.told() if watermark else ""))),
        watermark=watermark,
    )


def _lag(position: Vector, row: Row[Any], ends: Ends, source: str) -> tuple[int | None, str]:
    if row.state in ENDED or not position:
        return None, ""
    topic = ends.topic(source)
    if topic is None:
        return None, f"topic {source} is gone" if ends.known else ""
    if topic.id != row.topic_id:
        return None, f"topic {source} was recreated: it has id {topic.id}, not {row.topic_id}"
    return behind(position, topic.latest), ""


def rate(batches: Sequence[Batch], now: datetime) -> float | None:
    """Return the records a second of the last minute, from batches, newest first; None without any.

    The oldest batch in the window only says when counting began; a stream that stands still fades to 0.
    """
    if not batches:
        return None
    recent = [batch for batch in batches if now - batch.at <= RATE_WINDOW]
    if len(recent) < 2:
        return 0.0
    seconds = (now - recent[-1].at).total_seconds()
    return round(sum(batch.rows for batch in recent[:-1]) / seconds, 1) if seconds > 0 else 0.0


def _committed_at(connection: Connection, topic: str, topic_id: str) -> datetime:
    table = schema.mirror_commits
    mine = (table.c.topic == topic) & (table.c.topic_id == topic_id)
    query = select(table.c.at).where(mine).order_by(table.c.version.desc()).limit(1)
    found: datetime = connection.execute(query).scalar_one()
    return found
