"""What a planner reads of the world, and the read-only ports it reads it by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from rewind.core.offsets import OffsetRange, Ranges, Vector, higher
from rewind.core.periods import Period, Strays
from rewind.core.pipeline import KAFKA, Pipeline


@dataclass(frozen=True)
class Topic:
    """A Kafka topic as the broker describes it.

    Attributes:
        name: Its name.
        id: Kafka's id; a recreated topic has another.
        earliest: First offset still there, per partition.
        latest: End of what can be read, per partition: under `read_committed` the last stable offset.
        config: Effective topic settings.
        written: End of what was written, per partition, where the broker tells it apart.
        replicas: Copies of each partition; -1 for as many as the broker makes by itself.
    """

    name: str
    id: str
    earliest: Vector
    latest: Vector
    config: Mapping[str, str] = field(default_factory=dict)
    written: Vector = field(default_factory=dict)
    replicas: int = -1

    def end(self) -> Vector:
        """Return the end of what was written, per partition: what a lag is counted to."""
        return higher(self.latest, self.written)

    def held(self) -> Ranges:
        """Return the offsets that are written and cannot be read yet, of each partition that has some."""
        return {p: OffsetRange(self.latest[p], end) for p, end in self.end().items() if end > self.latest[p]}

    @property
    def compacted(self) -> bool:
        """Whether compaction may leave offset holes."""
        return "compact" in self.config.get("cleanup.policy", "delete")


def held_back(held: Mapping[int, OffsetRange]) -> list[str]:
    """Return what is told of offsets that are written and cannot be read yet (`Topic.held`)."""
    return [
        f"partition {p} is held back by an open transaction: readable to {part.start}, written to {part.end}"
        for p, part in sorted(held.items())
    ]


@dataclass(frozen=True)
class MirrorState:
    """What the mirror's commit records say, without a scan.

    Attributes:
        version: Newest version of the Delta table.
        topic_id: Id of the topic it mirrors.
        covered: Per partition the offsets read by its commits.
        holes: Per partition the offsets within `covered` at which no record was found.
        legal_holes: Per partition the holes that a compaction, a transaction or a recorded deletion explains.
        records: Records in all.
        bytes: Bytes of its files as they were added.
        void: Per partition the offsets within `covered` that others restored away, or rewrote, since.
        changed: What they did, as text; empty when nothing is void.
    """

    version: int
    topic_id: str
    covered: Mapping[int, Sequence[OffsetRange]]
    holes: Mapping[int, Sequence[OffsetRange]]
    legal_holes: Mapping[int, Sequence[OffsetRange]]
    records: int
    bytes: int
    void: Mapping[int, Sequence[OffsetRange]] = field(default_factory=dict)
    changed: str = ""

    def end(self) -> Vector:
        """Return the mirror's committed source position."""
        return {p: parts[-1].end for p, parts in self.covered.items() if parts}

    def start(self) -> Vector:
        """Return the first offset that the mirror covers, per partition."""
        return {p: parts[0].start for p, parts in self.covered.items() if parts}


@dataclass(frozen=True)
class Generation:
    """One version of a pipeline, as the registry holds it.

    Attributes:
        job_id: `<pipeline>-g<N>`, or `<pipeline>-r<N>` for a repair.
        pipeline: Its pipeline.
        state: planned, candidate, live, standby, retired, collected or aborted.
        topic_id: Id of the source topic it was made for.
        bundle: Hash of its frozen code.
        frozen: Its configuration (`Pipeline.frozen()`), and the versions it was made with.
        start: First offset of its own history, per partition.
        handoff: First offset its stream reads, per partition; None until it is fixed.
        output_topic: Where it writes.
        dead_letter_topic: Where it writes what it rejects.
    """

    job_id: str
    pipeline: str
    state: str
    topic_id: str
    bundle: str
    frozen: Mapping[str, Any]
    start: Vector
    handoff: Vector | None
    output_topic: str
    dead_letter_topic: str

    @cached_property
    def declared(self) -> Pipeline:
        """What its pipeline said when it was frozen.

        Raises:
            RefusedError: It holds a setting that this release does not know.
        """
        return Pipeline.from_frozen(self.frozen["config"])

    @property
    def source_topic(self) -> str:
        """The topic it reads."""
        return str(self.frozen["config"]["source_topic"])

    @property
    def output_format(self) -> str:
        """Whether it writes to a topic (`KAFKA`) or to a table (`DELTA`)."""
        return str(self.frozen["config"].get("output_format", KAFKA))

    @property
    def isolation(self) -> str:
        """Kafka isolation level by which it reads."""
        return str(self.frozen["config"].get("isolation", "read_committed"))

    @property
    def output_schema(self) -> str:
        """Spark DDL of what its logic gives."""
        return str(self.frozen.get("output_schema", ""))

    @property
    def kept_state(self) -> tuple[str, ...]:
        """The operators that keep its state, as Spark names them; empty without state."""
        return tuple(self.frozen.get("state", ()))

    @property
    def state_partitions(self) -> int:
        """Into how many partitions its state is split, for ever."""
        return int(self.frozen["partitions"])

    @property
    def trusted_from(self) -> int | None:
        """From which instant of event time on its results hold all of their records, in milliseconds since 1970."""
        found = self.frozen.get("trusted_from")
        return None if found is None else int(found)

    @property
    def epoch(self) -> int:
        """The epoch by which it versions its output; 0 when it was made before outputs had versions."""
        return int(self.frozen.get("epoch", 0))


@dataclass(frozen=True)
class Batch:
    """One committed micro-batch.

    Attributes:
        batch: Its id in the checkpoint.
        start: First offset it read, per partition.
        end: Offset after the last one it read, per partition.
        rows: Records it read.
        at: When it was recorded, UTC.
        late_watermark: The watermark by which it left late rows out, in milliseconds since 1970; 0 for none.
        closing_watermark: The watermark by which it closed results, the same way.
    """

    batch: int
    start: Vector
    end: Vector
    rows: int
    at: datetime
    late_watermark: int = 0
    closing_watermark: int = 0


class TopicReader(Protocol):
    """What a view of the state reads of the broker."""

    def topic(self, name: str) -> Topic | None:
        """Return the topic, or None when there is none of that name."""


class BrokerReader(TopicReader, Protocol):
    """What is read of the broker."""

    def topics(self) -> list[str]:
        """Return the names of all topics."""

    def group_state(self, group: str) -> str | None:
        """Return the state of a consumer group, or None when there is none."""

    def group_offsets(self, group: str, topic: str) -> Vector:
        """Return the committed positions of a consumer group on a topic; empty when there are none."""


class MirrorReader(Protocol):
    """What is read of the mirror."""

    def state(self, topic: str) -> MirrorState | None:
        """Return what the mirror of the topic holds, or None when there is none."""

    def within(self, topic: str, period: Period) -> Ranges:
        """Return per partition the offsets from the first to after the last mirrored record of a period.

        A partition that holds none is absent.

        Raises:
            RefusedError: The topic is not on the broker, or has no mirror.
        """

    def strays(self, topic: str, ranges: Ranges, period: Period) -> Strays:
        """Return how many mirrored records at some offsets lie outside a period.

        Raises:
            RefusedError: The topic is not on the broker, or has no mirror.
        """


class LifecycleReader(Protocol):
    """What is read of the registry."""

    def live(self, pipeline: str) -> tuple[Generation, int] | None:
        """Return the live generation and the epoch, or None before the first deploy."""

    def position(self, job_id: str) -> Vector:
        """Return the next offset a stream will read, from its last committed batch."""

    def newest_batch(self, job_id: str) -> Batch | None:
        """Return the last committed batch of a stream, or None before the first."""

    def batch_reaching(self, job_id: str, position: Vector) -> Batch | None:
        """Return the first batch of a stream that ends at or past a position in all its partitions, or None."""

    def last_batch_closing(self, job_id: str, watermark: int) -> Batch | None:
        """Return the newest batch of a stream whose closing watermark is at or below an instant (ms), or None."""

    def first_batch_closing_after(self, job_id: str, watermark: int) -> Batch | None:
        """Return the first batch of a stream whose closing watermark is above an instant (ms), or None."""

    def active_rewind(self, pipeline: str) -> str | None:
        """Return the id of the active rewind, if any."""

    def next_number(self, pipeline: str, kind: str) -> int:
        """Return the number that the next generation (`g`) or repair (`r`) will get."""
