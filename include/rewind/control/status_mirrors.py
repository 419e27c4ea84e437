"""The part of the view that shows mirrors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from rewind.control import mirror_sums, proof_log, streams
from rewind.control.mirror_sums import Sum
from rewind.control.proof_log import Proven
from rewind.control.status_drivers import Driver, Drivers
from rewind.control.status_jobs import Ends
from rewind.core import names
from rewind.core.offsets import Ranges, Vector, behind
from rewind.core.world import held_back


@dataclass(frozen=True)
class Mirror:
    """The mirror of a topic.

    Attributes:
        topic: The topic.
        version: Newest version of its table; None before the first commit.
        records: Records it holds.
        position: Its committed source position.
        lag: Offsets between position and the end of what was written; None when that is unknown.
        committed_at: When it last committed, UTC.
        age_seconds: How long ago that was.
        driver: Its driver.
        proof: The newest proof of it; None before the first.
        held: Offsets that it cannot read yet, by partition: an open transaction holds them back; None when Kafka's
            ends are unknown.
        note: What is told of it.
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
    held: Ranges | None = None
    note: str = ""


def mirrors_of(connection: Connection, ends: Ends, now: datetime, url: str) -> tuple[Mirror, ...]:
    """Return all mirrors as far as they have come, by topic.

    Args:
        connection: To the registry.
        ends: Kafka's.
        now: The instant that ages are counted to, UTC without zone.
        url: Of the registry, under which what its commits sum up to is kept.
    """
    held, proven = mirror_sums.newest(connection, url), proof_log.newest_of_all(connection)
    prefix = names.mirror_owner("")
    wished = [owner.removeprefix(prefix) for owner in streams.owners_of(connection, streams.MIRROR)]
    topics = sorted({*held, *wished})
    drivers = Drivers(connection, [names.mirror_owner(topic) for topic in topics], now)
    made = [Mirror(topic, None, 0, {}, None, None, None, drivers.of(names.mirror_owner(topic), "")) for topic in topics]
    return tuple(
        _filled(mirror, held[mirror.topic], ends, now, proven) if mirror.topic in held else mirror for mirror in made
    )


def _filled(empty: Mirror, held: Sum, ends: Ends, now: datetime, proven: Mapping[tuple[str, str], Proven]) -> Mirror:
    found = ends.topic(held.topic)
    found = found if found is not None and found.id == held.topic_id else None
    waiting = None if found is None else found.held()
    return replace(
        empty,
        version=held.version,
        records=held.records,
        position=held.position,
        lag=None if found is None else behind(held.position, found.end()),
        committed_at=held.at,
        age_seconds=(now - held.at).total_seconds(),
        proof=proven.get((held.topic, held.topic_id)),
        held=waiting,
        note="; ".join(held_back(waiting or {})),
    )
