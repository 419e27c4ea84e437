"""The real broker, with what the owner of a topic, its producers and the member of a group do."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from rewind.core.model import Topic
from rewind.core.settings import Settings
from rewind.runtime.kafka import broker as real

HANGS_MILLISECONDS = 800_000
"""After what time the broker itself ends a transaction that nobody ends: longer than any test."""
CLEANED_SECONDS = 60.0
MARKED_SECONDS = 30.0
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "segment.ms": "1",
    "segment.jitter.ms": "0",
}
"""Settings of a topic whose cleaner works at once, on all but the newest segment."""


class RealBroker(real.Broker):
    """The real one, to which tests can also write."""

    def __init__(self, settings: Settings, isolation: str = "read_committed") -> None:
        super().__init__(settings, isolation)
        self._settings = settings

    @functools.cached_property
    def _producer(self) -> Any:
        return KafkaProducer(**self._options, acks="all")

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """Be a member of a group meanwhile."""
        consumer = KafkaConsumer(group_id=group, **{**self._options, "enable_auto_commit": False})
        try:
            # One that joins before it has heard of the topic is assigned nothing.
            assert consumer.partitions_for_topic(topic)
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(200)
            yield
        finally:
            consumer.close()

    def make(self, name: str, partitions: int = 1, **config: str) -> Topic:
        """Make a topic as its owner would."""
        with self._admin() as admin:
            admin.create_topics({name: {"num_partitions": partitions, "configs": config}}, wait_for_metadata=True)
        made = self.topic(name)
        assert made is not None
        return made

    def uncommitted(self) -> RealBroker:
        """Return the same broker for those who do not wait for transactions to end."""
        return RealBroker(self._settings, "read_uncommitted")

    def append(self, topic: str, partition: int, written: Sequence[tuple[bytes, int]]) -> None:
        """Write records as another producer does: keys, and timestamps in milliseconds."""
        _send(self._producer, topic, partition, written)

    def transaction(self) -> RealTransaction:
        """Begin a transaction; it is open until it is ended."""
        options = {"transactional_id": str(uuid.uuid4()), "transaction_timeout_ms": HANGS_MILLISECONDS}
        producer = KafkaProducer(**self._options, **options)
        producer.init_transactions()
        producer.begin_transaction()
        return RealTransaction(self.uncommitted(), producer)

    def clean(self, topic: str) -> None:
        """Wait until the log cleaner of a topic of `COMPACTED` has left one record of each key that can be read.

        It leaves the newest segment alone, and all from the first open transaction on.
        """
        deadline = time.monotonic() + CLEANED_SECONDS
        while _repeated(self.read_all(topic)):
            assert time.monotonic() < deadline, f"the cleaner has not come to {topic}"


class RealTransaction:
    """Records of several partitions that are read together, or never."""

    def __init__(self, broker: RealBroker, producer: Any) -> None:
        self._broker = broker
        self._producer = producer
        self._touched: set[tuple[str, int]] = set()

    def append(self, topic: str, partition: int, written: Sequence[tuple[bytes, int]]) -> None:
        """Write records: keys, and timestamps in milliseconds."""
        self._touched.add((topic, partition))
        _send(self._producer, topic, partition, written)

    def commit(self) -> None:
        """End it: what it wrote can be read."""
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        """End it: what it wrote is never read."""
        self._end(self._producer.abort_transaction)

    def _end(self, how: Callable[[], None]) -> None:
        before = self._ends()
        how()
        self._producer.close()
        # The broker answers before it has written the markers.
        deadline = time.monotonic() + MARKED_SECONDS
        while self._ends() != {place: end + 1 for place, end in before.items()}:
            assert time.monotonic() < deadline, "the broker has not written the markers of a transaction"

    def _ends(self) -> dict[tuple[str, int], int]:
        topics = {name: self._broker.topic(name) for name in {name for name, _ in self._touched}}
        return {(name, partition): topics[name].latest[partition] for name, partition in self._touched}


def _send(producer: Any, topic: str, partition: int, written: Sequence[tuple[bytes, int]]) -> None:
    sent = [producer.send(topic, b"v", key, partition=partition, timestamp_ms=at) for key, at in written]
    producer.flush()
    for one in sent:
        one.get(timeout=30)


def _repeated(records: Sequence[Any]) -> bool:
    places = [(record.partition, record.key) for record in records]
    return len(places) > len(set(places))
