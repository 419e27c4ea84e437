"""The part of the view that shows mirrors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from rewind.core import names
from rewind.core.model import held_back
from rewind.core.offsets import Ranges, Vector, behind
from rewind.registry import streams
from rewind.registry.mirrors import mirror_sums, proof_log
from rewind.registry.mirrors.mirror_sums import Sum
from rewind.registry.mirrors.proof_log import Proven
from rewind.runtime.drivers.driver_state import Driver, Drivers
from rewind.views.status_jobs import Ends


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


class Mirrors:
    """What the registry holds of mirrors; Kafka is asked when the registry is let go."""

    def __init__(self, connection: Connection, now: datetime, url: str) -> None:
        """Read it.

        Args:
            connection: To the registry.
            now: The instant that ages are counted to, UTC without zone.
            url: Of the registry, under which what its commits sum up to is kept.
        """
        self._held, self._proven = mirror_sums.newest(connection, url), proof_log.newest_of_all(connection)
        prefix = names.mirror_owner("")
        wished = [owner.removeprefix(prefix) for owner in streams.owners_of(connection, streams.MIRROR)]
        self._topics = sorted({*self._held, *wished})
        self._drivers = Drivers(connection, [names.mirror_owner(topic) for topic in self._topics], now)
        self._now = now

    def seen(self, ends: Ends) -> tuple[Mirror, ...]:
        """Return all mirrors as far as they have come, by topic."""
        return tuple(self._mirror(topic, ends) for topic in self._topics)

    def _mirror(self, topic: str, ends: Ends) -> Mirror:
        empty = Mirror(topic, None, 0, {}, None, None, None, self._drivers.of(names.mirror_owner(topic), ""))
        held = self._held.get(topic)
        return empty if held is None else _filled(empty, held, ends, self._now, self._proven)


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
