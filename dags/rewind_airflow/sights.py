"""Where streams are: positions from the registry, ends from Kafka."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Connection

from rewind.core import names, offsets
from rewind.core.errors import RetryError
from rewind.core.model import Topic, held_back
from rewind.core.offsets import Ranges, Vector
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import generations, leases, progress, streams
from rewind.registry.database import reading

# Two looks wide, so that each minute has one.
LAG_SECONDS = 20


@dataclass(frozen=True)
class Race:
    """Where candidate and live are.

    Attributes:
        candidate: Candidate's position.
        live: Live's position.
        end: The end of what can be read: no candidate passes an open transaction.
        driven: Whether the candidate's driver lives.
        quarantined: How the candidate last failed, when it is set aside; else empty.
        held: Offsets that are written and cannot be read yet, by partition.
    """

    candidate: Vector
    live: Vector
    end: Vector
    driven: bool
    quarantined: str
    held: Ranges = field(default_factory=dict)

    @property
    def behind_live(self) -> int:
        """Offsets that the candidate lacks to reach live."""
        return offsets.behind(self.candidate, self.live)

    @property
    def lag(self) -> int:
        """Offsets that the candidate lacks to reach the end of what can be read."""
        return offsets.behind(self.candidate, self.end)

    def close(self, gate: int) -> bool:
        """Return whether the candidate runs within the gate of live, and of what can be read unless live is as far."""
        allowed = max(gate, offsets.behind(self.live, self.end))
        return self.driven and self.behind_live <= gate and self.lag <= allowed


def race(settings: Settings, plan: Plan) -> Race:
    """Return where the candidate of a plan and its live job are.

    Raises:
        RetryError: Registry or Kafka are away, or the topic is.
    """
    with reading(settings.registry_url) as connection:
        candidate, live = _position(connection, plan.job_id), _position(connection, plan.live_job_id)
        driven, quarantined = _driven(connection, plan.job_id), _quarantined(connection, plan.job_id)
    # Outside of the transaction: a slow broker must not lock the registry.
    topic = _described(settings, plan.topic, str(plan.config["isolation"]))
    return Race(candidate, live, topic.latest, driven, quarantined, topic.held())


def of_stream(settings: Settings, owner: str) -> str:
    """Return position and, once a minute, lag of a stream as one line for a log."""
    try:
        with reading(settings.registry_url) as connection:
            position, (topic, isolation) = _position(connection, owner), _source(connection, owner)
        at = f"at {offsets.to_spark_json(topic, position)}"
        # To ask Kafka costs more than the rest of a look.
        if datetime.now(UTC).second >= LAG_SECONDS:
            return at
        seen = _described(settings, topic, isolation)
        return "; ".join(
            (f"{at}, {offsets.behind(position, seen.end()):,} behind Kafka's end", *held_back(seen.held()))
        )
    except RetryError as error:
        return f"position or lag unknown ({error})"


def _position(connection: Connection, owner: str) -> Vector:
    generation = generations.find(connection, owner)
    return progress.position(connection, owner, generation.handoff if generation else None)


def _source(connection: Connection, owner: str) -> tuple[str, str]:
    """Return the topic that a stream reads, and its isolation level."""
    generation = generations.find(connection, owner)
    if generation is None:
        return owner.removeprefix(names.mirror_owner("")), "read_committed"
    return generation.source_topic, generation.isolation


def _described(settings: Settings, topic: str, isolation: str) -> Topic:
    # Kafka's client takes longer to import than the rest of a look.
    from rewind.runtime.kafka.broker import Broker

    logging.getLogger("kafka").setLevel(logging.WARNING)
    found = Broker(settings, isolation).topic(topic)
    if found is None:
        raise RetryError(f"Kafka has no topic {topic}")
    return found


def _driven(connection: Connection, owner: str) -> bool:
    lease = leases.read(connection, owner)
    return lease is not None and lease.holder is not None and leases.alive(lease.holder)


def _quarantined(connection: Connection, owner: str) -> str:
    stream = streams.read(connection, owner)
    if stream is None or stream.quarantined_at is None:
        return ""
    return f"{owner} is quarantined after {stream.failures} failures: {stream.cause}"
