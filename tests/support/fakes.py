"""In-memory stands-in: a broker that keeps its promises, and worlds for planners.

`FakeBroker` passes the same contract as the real one (`tests/contract/test_broker.py`).
"""

from __future__ import annotations

import base64
import functools
import itertools
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Generation, MirrorState, Topic
from rewind.core.offsets import OffsetRange, Vector
from rewind.core.pipeline import Pipeline
from rewind.core.planning.plan import Plan, Request, sealed
from rewind.core.planning.planner import Code, World
from rewind.core.settings import Settings, from_environment
from rewind.registry import database
from rewind.runtime.kafka.broker import COPIED_SETTINGS
from tests.support.fake_ports import BYTES, FakeLifecycle, FakeMirror

TOPIC = "visits"
BEGUN = 1_757_000_000_000
"""What a broker's own clock says first, in milliseconds."""
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
PIPELINE = Pipeline("visits_converter", TOPIC, "event_id STRING", "visits_converted")
CODE = Code("b2", {"main/stream.py": "s1", "logic.py": "l2"}, {"main/stream.py": "s1", "logic.py": "l1"}, "e STRING")


@dataclass
class FakeBroker:
    """Topics and groups in memory. Records never expire."""

    defaults: Mapping[str, str] = field(
        default_factory=lambda: {
            "cleanup.policy": "delete",
            "retention.ms": "604800000",
            "max.message.bytes": "1048588",
            "min.insync.replicas": "1",
        }
    )
    described: dict[str, Topic] = field(default_factory=dict)
    records: dict[str, list[SimpleNamespace]] = field(default_factory=dict)
    positions: dict[str, dict[str, Vector]] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    isolation: str = "read_committed"
    clock: Callable[[], int] = field(default_factory=lambda: functools.partial(next, itertools.count(BEGUN, 7)))

    def topics(self) -> list[str]:
        return sorted(self.described)

    def topic(self, name: str) -> Topic | None:
        found = self.described.get(name)
        stable = self._stable(name)
        return replace(found, latest={**found.latest, **stable}, written=found.latest) if found and stable else found

    def _stable(self, name: str) -> Vector:
        """Return where the first open transaction of each partition begins, for those who wait for it to end."""
        waiting = [r for r in self.records.get(name, ()) if r.transaction is not None and r.transaction.ended is None]
        first: Vector = {}
        for record in waiting if self.isolation == "read_committed" else ():
            first.setdefault(record.partition, record.offset)
        return first

    def uncommitted(self) -> FakeBroker:
        """Return the same broker for those who do not wait for transactions to end."""
        return replace(self, isolation="read_uncommitted")

    def make(self, name: str, partitions: int = 1, **config: str) -> Topic:
        """Make a topic as its owner would: `make("visits", 2, **{"cleanup.policy": "compact"})`."""
        topic_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        zeros = dict.fromkeys(range(partitions), 0)
        self.described[name] = Topic(name, topic_id, zeros, dict(zeros), {**self.defaults, **config}, replicas=1)
        self.records[name] = []
        return self.described[name]

    def create_topic(self, name: str, like: Topic, partitions: int, cleanup: str) -> str:
        if like.replicas > 1:
            raise RetryError("one broker: InvalidReplicationFactorError, a replication factor of one at most")
        copied = {key: like.config[key] for key in COPIED_SETTINGS if key in like.config}
        return self._made(name, partitions, **{"cleanup.policy": cleanup, "retention.ms": "-1", **copied})

    def check_group(self, group: str, topic: str = "") -> None:
        """Every right is granted."""

    def check_rights(self, held: Mapping[str, Sequence[str]], made: Collection[str] = ()) -> None:
        """Whoever asks may do everything here."""

    def create_control_topic(self, name: str) -> None:
        self._made(name, 1, **{"cleanup.policy": "compact"})

    def _made(self, name: str, partitions: int, **config: str) -> str:
        return (self.described.get(name) or self.make(name, partitions, **config)).id

    def delete_topic(self, name: str, topic_id: str, timeout: float = 60) -> bool:
        found = self.described.get(name)
        if found is None:
            return False
        if found.id != topic_id:
            raise RefusedError(
                "topic",
                f"{name} has id {found.id}, not {topic_id}",
                "The topic was recreated by somebody else; see who owns it",
            )
        del self.described[name], self.records[name]
        for positions in self.positions.values():
            positions.pop(name, None)
        return True

    def group_offsets(self, group: str, topic: str) -> Vector:
        return dict(self.positions.get(group, {}).get(topic, {}))

    def group_state(self, group: str) -> str | None:
        if group in self.members:
            return "Stable"
        return "Empty" if group in self.positions else None

    def commit(self, group: str, topic: str, vector: Mapping[int, int]) -> None:
        unknown = {p: "UnknownTopicOrPartitionError" for p in vector if p not in self.described[topic].latest}
        if unknown:
            raise RetryError(f"group {group}: the broker refused the positions of {unknown}")
        self.positions.setdefault(group, {}).setdefault(topic, {}).update(vector)

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """Be a member of a group meanwhile."""
        self.positions.setdefault(group, {})
        self.members.add(group)
        yield
        self.members.discard(group)

    def delete_group(self, group: str) -> bool:
        if group in self.members:
            raise RetryError(f"NonEmptyGroupError: group {group} could not be deleted")
        return self.positions.pop(group, None) is not None

    def send(self, topic: str, key: bytes, value: bytes | None) -> None:
        partition = hash(key) % len(self.described[topic].latest)
        self._append(topic, partition, None, key=key, value=value, timestamp=self.clock())

    def append(self, topic: str, partition: int, written: Sequence[tuple[bytes, int]]) -> None:
        """Write records as another producer does: keys, and timestamps in milliseconds."""
        self._written(topic, partition, written, None)

    def transaction(self) -> FakeTransaction:
        """Begin a transaction; it is open until it is ended."""
        return FakeTransaction(self)

    def clean(self, topic: str) -> None:
        """Let the log cleaner of a compacted topic work: below an open transaction the newest of each key stays."""
        stable, newest = self._stable(topic), {}
        for record in self.records[topic]:
            if _read(record) and record.offset < stable.get(record.partition, record.offset + 1):
                newest[record.partition, record.key] = record.offset
        self.records[topic] = [
            record
            for record in self.records[topic]
            if record.offset >= stable.get(record.partition, record.offset + 1)
            or (_read(record) and record.offset == newest[record.partition, record.key])
        ]

    def _written(
        self, topic: str, partition: int, written: Sequence[tuple[bytes, int]], transaction: FakeTransaction | None
    ) -> None:
        broker_s = self.described[topic].config.get("message.timestamp.type") == "LogAppendTime"
        for key, at in written:
            timestamp = self.clock() if broker_s else at
            self._append(topic, partition, transaction, key=key, value=b"v", timestamp=timestamp, by=int(broker_s))

    def _append(
        self, topic: str, partition: int, transaction: FakeTransaction | None, *, by: int = 0, **record: Any
    ) -> None:
        """Write a record, or the marker that ends a transaction in a partition, which has no key."""
        found = self.described[topic]
        offset = found.latest[partition]
        place = {"partition": partition, "offset": offset, "timestamp_type": by, "transaction": transaction}
        self.records[topic].append(SimpleNamespace(**place, **record))
        self.described[topic] = replace(found, latest={**found.latest, partition: offset + 1})

    def read_all(self, topic: str) -> list[Any]:
        stable = self._stable(topic)
        there = [r for r in self.records.get(topic, []) if r.offset < stable.get(r.partition, r.offset + 1)]
        found = [r for r in there if _read(r) or (self.isolation == "read_uncommitted" and r.key is not None)]
        return sorted(found, key=lambda record: (record.partition, record.offset))


def _read(record: Any) -> bool:
    """Return whether those who wait for transactions to end read a record: no marker, and not taken back."""
    return record.key is not None and (record.transaction is None or record.transaction.ended == "committed")


@dataclass(eq=False)
class FakeTransaction:
    """Records of several partitions that are read together, or never."""

    broker: FakeBroker
    ended: str | None = None
    touched: dict[tuple[str, int], None] = field(default_factory=dict)

    def append(self, topic: str, partition: int, written: Sequence[tuple[bytes, int]]) -> None:
        """Write records: keys, and timestamps in milliseconds."""
        self.touched[topic, partition] = None
        self.broker._written(topic, partition, written, self)

    def commit(self) -> None:
        """End it: what it wrote can be read."""
        self._end("committed")

    def abort(self) -> None:
        """End it: what it wrote is never read."""
        self._end("aborted")

    def _end(self, how: str) -> None:
        self.ended = how
        for topic, partition in self.touched:
            self.broker._append(topic, partition, self, key=None, value=None, timestamp=self.broker.clock())


def topic(earliest: Vector, latest: Vector, topic_id: str = TOPIC_ID, **config: str) -> Topic:
    """A source topic as the broker describes it."""
    return Topic(TOPIC, topic_id, earliest, latest, config)


def mirror(
    covered: Mapping[int, tuple[int, int]],
    holes: Mapping[int, Sequence[tuple[int, int]]] | None = None,
    *,
    legal: bool = False,
    topic_id: str = TOPIC_ID,
    version: int = 7,
) -> MirrorState:
    """What a mirror holds that covers one range a partition."""
    empty = {p: [OffsetRange(*h) for h in hs] for p, hs in (holes or {}).items()}
    parts = {p: [OffsetRange(*r)] for p, r in covered.items()}
    records = sum(len(r) for rs in parts.values() for r in rs) - sum(len(h) for hs in empty.values() for h in hs)
    return MirrorState(version, topic_id, parts, empty, empty if legal else {}, records, records * BYTES)


def generation(pipeline: Pipeline = PIPELINE, number: int = 1, **changes: Any) -> Generation:
    """A generation of a pipeline that began at 0 in two partitions, live unless said otherwise."""
    made = Generation(
        job_id=f"{pipeline.name}-g{number}",
        pipeline=pipeline.name,
        state="live",
        topic_id=TOPIC_ID,
        bundle=f"b{number}",
        frozen={"config": pipeline.frozen(), "versions": {}},
        start={0: 0, 1: 0},
        handoff={0: 0, 1: 0},
        output_topic=f"{pipeline.output_topic}-g{number}",
        dead_letter_topic=f"{pipeline.output_topic}-g{number}-dead",
    )
    return replace(made, **changes)


def plan(**changes: Any) -> Plan:
    """A sealed plan of the pipeline's second generation, the first being live at epoch 1; `changes` replace parts."""
    made = Plan(
        kind="rewind",
        request=Request(PIPELINE.name),
        job_id=f"{PIPELINE.name}-g2",
        live_job_id=f"{PIPELINE.name}-g1",
        epoch=1,
        topic=TOPIC,
        topic_id=TOPIC_ID,
        start={0: 0, 1: 0},
        end={0: 5, 1: 5},
        mirror_version=1,
        records=10,
        bytes=10,
        chunks=1,
        estimate_seconds=1.0,
        differences=(),
        config=PIPELINE.frozen(),
        bundle="b",
        output_schema="a STRING",
        output_topic=f"{PIPELINE.output_topic}-g2",
        dead_letter_topic=f"{PIPELINE.output_topic}-g2-dead",
    )
    return sealed(replace(made, **changes))


def world(
    source: Topic | None = None,
    state: MirrorState | None = None,
    lifecycle: FakeLifecycle | None = None,
    *,
    others: Sequence[str] = (),
) -> World:
    """A world in which all is well: partition 0 at 100 and 1 at 60, mirrored whole, live five behind.

    Args:
        source: The source topic; None for the usual one.
        state: The mirror's state; None for one that covers the usual topic.
        lifecycle: The registry; None for one with a first live generation.
        others: Names of further topics.
    """
    broker = FakeBroker()
    for name in others:
        broker.make(name)
    broker.described[TOPIC] = source or topic({0: 0, 1: 0}, {0: 100, 1: 60})
    held = state or mirror({0: (0, 100), 1: (0, 60)})
    seen = FakeMirror(broker, states={(TOPIC, held.topic_id): held})
    return World(broker, seen, lifecycle or FakeLifecycle(generation(handoff={0: 95, 1: 55})), 1 << 40)


@functools.cache
def _empty_registry() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "registry.db"
        database.upgrade(f"sqlite:///{file}")
        return file.read_bytes()


def installation(home: Path, **chosen: str) -> Settings:
    """Settings of an installation in `home` with an empty registry, its broker out of reach."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "registry.db").write_bytes(_empty_registry())
    return _settings(home, **chosen)


def copied(template: Path, home: Path) -> Settings:
    """Settings of a copy of such an installation, in `home`."""
    shutil.copytree(template, home, dirs_exist_ok=True)
    return _settings(home)


def _settings(home: Path, **chosen: str) -> Settings:
    return from_environment({"REWIND_HOME": str(home), "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1", **chosen})
