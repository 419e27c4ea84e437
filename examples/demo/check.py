"""An independent check of a pipeline's output: a plain Kafka reader, no Spark, no registry, nothing of the engine.

Expectations are computed from the source topic itself, as it is on the broker: each good record and tombstone
exactly once after deduplication by `rewind-source`, each bad record exactly once among the dead letters, none
missing, none extra, and the records of a key in the order of the source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

SOURCE_HEADER = "rewind-source"
REASON_HEADER = "rewind-reason"
JOB_HEADER = "rewind-job"
SAMPLE = 5
STILL_SECONDS = 90

Place = tuple[int, int]
"""Source partition and offset."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What must become of one source record.

    Attributes:
        dead: Whether it belongs to the dead letters.
        key: Its key there.
        value: The exact bytes; None for a tombstone.
    """

    dead: bool
    key: bytes | None
    value: bytes | None


@dataclass
class Findings:
    """What a check found; all but `records`, `good`, `tombstones`, `bad` and `repeats` should be 0.

    Attributes:
        records: Source records.
        good: Good ones.
        tombstones: Tombstones.
        bad: Bad ones.
        repeats: Output records beyond the first of their source record, with the same bytes: at least once allows them.
        counts: Faults by class.
        sample: Some of each class, as text.
    """

    records: int = 0
    good: int = 0
    tombstones: int = 0
    bad: int = 0
    repeats: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("missing", "extra", "changed", "repeated_differently", "misplaced", "out_of_order", "unmarked"), 0
        )
    )
    sample: dict[str, list[str]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.counts.values())

    def fault(self, kind: str, what: object) -> None:
        """Count one fault and keep some for the report."""
        self.counts[kind] += 1
        kept = self.sample.setdefault(kind, [])
        if len(kept) < SAMPLE:
            kept.append(str(what))


def wanted(key: bytes | None, value: bytes | None, zone: ZoneInfo) -> Wanted:
    """Return what must become of a source record of `visits_converter`."""
    if value is None:
        return Wanted(dead=False, key=key, value=None)
    body = _parsed(value)
    return Wanted(True, key, value) if body is None else Wanted(False, key, _converted(body, zone))


def _parsed(value: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(value.decode("utf-8"))
        well_typed = (
            isinstance(body["event_id"], str) and type(body["visit_id"]) is int and isinstance(body["page"], str)
        )
        datetime.fromisoformat(body["event_time"])
    except (ValueError, KeyError, TypeError):
        return None
    return body if well_typed else None


def _converted(body: Mapping[str, Any], zone: ZoneInfo) -> bytes:
    instant = datetime.fromisoformat(body["event_time"]).replace(tzinfo=zone)
    output = {
        "event_identifier": body["event_id"],
        "visit_identifier": body["visit_id"],
        "event_time": instant.isoformat(timespec="milliseconds"),
        "visited_page": body["page"],
    }
    return json.dumps(output, ensure_ascii=False, separators=(",", ":")).encode()


def expectations(source: Iterable[Any], zone: str, start: Mapping[int, int]) -> dict[Place, Wanted]:
    """Return what must become of each source record, from the records themselves.

    Args:
        source: Kafka records of the source topic.
        zone: Session time zone of the pipeline.
        start: First offset that the output must cover, per partition.
    """
    place = ZoneInfo(zone)
    return {
        (record.partition, record.offset): wanted(record.key, record.value, place)
        for record in source
        if record.offset >= start.get(record.partition, 0)
    }


def compare(
    expected: Mapping[Place, Wanted], topic_id: str, job_id: str, output: Iterable[Any], dead: Iterable[Any]
) -> Findings:
    """Return how an output and its dead letters differ from what is expected.

    Args:
        expected: What must become of each source record.
        topic_id: Id of the source topic.
        job_id: The job whose output it is.
        output: Kafka records of the output topic, each partition in the order of its offsets.
        dead: Kafka records of the dead-letter topic.
    """
    found = Findings(records=len(expected))
    found.bad = sum(w.dead for w in expected.values())
    found.tombstones = sum(not w.dead and w.value is None for w in expected.values())
    found.good = found.records - found.bad - found.tombstones
    seen: dict[Place, tuple[bool, bytes | None, bytes | None]] = {}
    newest: dict[bytes, Place] = {}
    for is_dead, records in ((False, output), (True, dead)):
        for record in records:
            place = _place(record, topic_id, job_id, found)
            if place is not None and _first(record, is_dead, place, seen, found):
                _check(record, is_dead, place, expected, found)
                _check_order(record, is_dead, place, newest, found)
    for place in expected.keys() - seen.keys():
        found.fault("missing", f"source {place}")
    return found


def _place(record: Any, topic_id: str, job_id: str, found: Findings) -> Place | None:
    headers = dict(record.headers)
    parts = headers.get(SOURCE_HEADER, b"").decode().split(":")
    if len(parts) != 3 or parts[0] != topic_id or headers.get(JOB_HEADER, b"").decode() != job_id:
        found.fault("unmarked", f"{record.topic} {record.partition}:{record.offset} {headers}")
        return None
    return int(parts[1]), int(parts[2])


def _first(
    record: Any,
    is_dead: bool,
    place: Place,
    seen: dict[Place, tuple[bool, bytes | None, bytes | None]],
    found: Findings,
) -> bool:
    content = (is_dead, record.key, record.value)
    before = seen.setdefault(place, content)
    if before is content:
        return True
    if before == content:
        found.repeats += 1
    else:
        found.fault("repeated_differently", f"source {place}: {before} and {content}")
    return False


def _check(record: Any, is_dead: bool, place: Place, expected: Mapping[Place, Wanted], found: Findings) -> None:
    want = expected.get(place)
    if want is None:
        found.fault("extra", f"source {place}")
    elif want.dead != is_dead:
        found.fault("misplaced", f"source {place} in {record.topic}")
    elif (record.key, record.value) != (want.key, want.value):
        found.fault("changed", f"source {place}: {record.key!r} {record.value!r}, not {want.key!r} {want.value!r}")
    if is_dead and not dict(record.headers).get(REASON_HEADER):
        found.fault("unmarked", f"dead letter of source {place} gives no reason")


def _check_order(record: Any, is_dead: bool, place: Place, newest: dict[bytes, Place], found: Findings) -> None:
    # A key has one source partition, and in the output one partition: there its records must keep their order.
    if is_dead or record.key is None:
        return
    last = newest.get(record.key)
    if last is not None and last >= place:
        found.fault("out_of_order", f"key {record.key!r}: source {place} after {last}")
    newest[record.key] = place


def read_topic(
    bootstrap: str, topic: str, ends: Mapping[int, int], starts: Mapping[int, int] | None = None
) -> Iterator[Any]:
    """Return the records of a topic up to its ends, each partition in order.

    Raises:
        TimeoutError: No record came for a minute and a half although some are due.
    """
    from kafka import KafkaConsumer, TopicPartition

    # The client's checksum is pure Python and would cost more than all the rest; TCP has one of its own.
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=False, max_poll_records=5_000
    )
    try:
        partitions = [TopicPartition(topic, p) for p in ends]
        consumer.assign(partitions)
        for tp in partitions:
            consumer.seek(tp, (starts or {}).get(tp.partition, 0))
        while any(consumer.position(tp) < ends[tp.partition] for tp in partitions):
            polled = consumer.poll(STILL_SECONDS * 1_000)
            if not polled:
                raise TimeoutError(f"{topic}: no record for {STILL_SECONDS} s before its ends {dict(ends)}")
            for tp, records in polled.items():
                yield from (record for record in records if record.offset < ends[tp.partition])
    finally:
        consumer.close()


def planted_numbers(source: Iterable[Any], header: str) -> dict[Place, int]:
    """Return the sequence number of each source record, from its header."""
    return {(r.partition, r.offset): int(dict(r.headers)[header]) for r in source}


def within(places: Iterable[Place], floor: Mapping[int, int], ceiling: Mapping[int, int]) -> Sequence[Place]:
    """Return the places in `[floor, ceiling)`."""
    return [(p, o) for p, o in places if floor.get(p, 0) <= o < ceiling.get(p, 0)]
