"""What would only show later, told with the plan: limits, retention, names in use, readers, disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rewind.core.errors import RefusedError
from rewind.core.model import BrokerReader, Generation, MirrorState, Topic, held_back
from rewind.core.offsets import Vector

MIRROR_KEEPS_SECONDS = 7 * 24 * 3600.0
"""How long a mirror keeps files that no newer version of it needs, unless it is told otherwise."""
START_SECONDS = 300.0
"""What a candidate takes to start and catch up, beside its backfill."""
NARROW = 0.1
"""A mirror is told to be close behind when it leads what Kafka drops next by less than this part of what is kept."""
SPILL_BYTES = 200
"""Disk that a comparison takes a row: a fingerprint of each output, and the shuffle of both."""
LEAST_BYTES = 1 << 30
RESTING = frozenset({"Empty", "Dead"})
"""States of a consumer group without members, as Kafka names them."""


@dataclass(frozen=True)
class Facts:
    """What a preflight looks at, beside the broker.

    Attributes:
        live: The live generation.
        topic: The source topic.
        mirror: Its mirror, if there is one.
        start: First offset of the range, per partition.
        job_id: The job that the plan will make.
        records: Records of the range.
        estimate_seconds: How long the backfill should take.
        readers: Consumer groups that the switch will move.
        free_bytes: Free on the disk of checkpoints, mirrors and shuffles.
        mirror_keeps_seconds: How long the mirror keeps files that no newer version of it needs.
        undeclared: Fields that newest records hold and the schema does not declare.
        repair: Whether it is a repair, which keeps to live's rules of reading.
    """

    live: Generation
    topic: Topic
    mirror: MirrorState | None
    start: Vector
    job_id: str
    records: int
    estimate_seconds: float
    readers: Sequence[str]
    free_bytes: int
    mirror_keeps_seconds: float = MIRROR_KEEPS_SECONDS
    undeclared: Sequence[str] = ()
    repair: bool = False


def told(facts: Facts, broker: BrokerReader) -> list[str]:
    """Return what the user should know before going on.

    Raises:
        RefusedError: The candidate's consumer group is in use, or a reader cannot be moved.
    """
    refuse_group_in_use(facts.job_id, broker)
    return [
        *held_back(facts.topic.held()),
        *_added(facts),
        *_exactness(facts),
        *_retention(facts),
        *_mirror(facts),
        *_pinned(facts),
        *_undeclared(facts),
        *_sizes(facts, broker),
        *_shared_group(facts, broker),
        *_readers(facts, broker),
        *_disk(facts),
    ]


def refuse_group_in_use(job_id: str, broker: BrokerReader) -> None:
    """Check that the consumer group of a job that is to be made is nobody's.

    Raises:
        RefusedError: It exists.
    """
    state = broker.group_state(job_id)
    if state is not None:
        cure = "Delete it, or rename the pipeline: the new job would take its positions for its own"
        raise RefusedError("pipeline", f"the consumer group {job_id} exists already ({state})", cure)


def _added(facts: Facts) -> Iterable[str]:
    mirrored = facts.mirror.end() if facts.mirror else {}
    for p in sorted(facts.topic.latest.keys() - facts.live.start.keys()):
        yield f"partition {p} was added since {facts.live.job_id} began: it starts at {facts.start[p]}"
    for p in sorted(facts.topic.latest.keys() - mirrored.keys()):
        if facts.mirror is not None and facts.topic.latest[p]:
            yield f"partition {p} is not mirrored yet: the candidate reads it from Kafka alone"


def _exactness(facts: Facts) -> Iterable[str]:
    if not facts.live.declared.exact and not facts.repair:
        yield (
            f"{facts.live.job_id} was made before values were read exactly: the candidate rejects texts that are not "
            "timestamps, numbers beyond their type and bytes behind the object, and keeps microseconds (docs/values.md)"
        )


def _retention(facts: Facts) -> Iterable[str]:
    topic, needed = facts.topic, facts.estimate_seconds + START_SECONDS
    seconds = int(topic.config.get("retention.ms", -1)) / 1000
    if "delete" in topic.config.get("cleanup.policy", "delete") and 0 <= seconds < needed:
        yield (
            f"{topic.name} keeps records for {seconds:,.0f} s, and the candidate reads it after about {needed:,.0f} s: "
            "what the mirror has not read by then is lost. Raise retention.ms meanwhile, or keep an eye on the mirror"
        )
    limit = int(topic.config.get("retention.bytes", -1))
    if limit >= 0:
        yield f"{topic.name} keeps {limit:,} bytes a partition, however fast records come: keep an eye on the mirror"


def _mirror(facts: Facts) -> Iterable[str]:
    for p, end in (facts.mirror.end() if facts.mirror else {}).items():
        earliest, latest = facts.topic.earliest.get(p, 0), facts.topic.latest.get(p, 0)
        if end < earliest:
            yield f"partition {p}: Kafka has dropped records that the mirror has not read"
        elif end < latest and end - earliest < NARROW * (latest - earliest):
            yield f"partition {p}: the mirror is {end - earliest:,} offsets ahead of what Kafka drops next"


def _pinned(facts: Facts) -> Iterable[str]:
    keeps, needed = facts.mirror_keeps_seconds, facts.estimate_seconds
    if facts.mirror is not None and keeps < needed:
        yield (
            f"the mirror keeps replaced files for {keeps:,.0f} s, and the backfill takes about {needed:,.0f} s: a "
            "VACUUM by anyone but the mirror's own job would take what it still reads. Raise REWIND_MIRROR_RETAIN_HOURS"
        )


def _undeclared(facts: Facts) -> Iterable[str]:
    if facts.undeclared:
        yield (
            f"newest records of {facts.topic.name} hold fields that source.schema does not declare: "
            f"{', '.join(facts.undeclared)}. They are left out until it does"
        )


def _sizes(facts: Facts, broker: BrokerReader) -> Iterable[str]:
    output = broker.topic(facts.live.output_topic)
    most, takes = _largest(facts.topic), _largest(output)
    if most is not None and takes is not None and most > takes:
        assert output is not None
        yield (
            f"{facts.topic.name} takes messages of up to {most:,} bytes, {output.name} of {takes:,}: a row larger than "
            f"that would stop the job. Raise max.message.bytes of {output.name}, the new output takes it over"
        )


def _largest(topic: Topic | None) -> int | None:
    value = topic.config.get("max.message.bytes") if topic else None
    return None if value is None else int(value)


def _shared_group(facts: Facts, broker: BrokerReader) -> Iterable[str]:
    state = broker.group_state(facts.live.job_id)
    if state is not None and state not in RESTING:
        yield f"the consumer group {facts.live.job_id} has members ({state}): somebody else commits as the live job"


def _readers(facts: Facts, broker: BrokerReader) -> Iterable[str]:
    for group in facts.readers:
        check_reader(broker, group, facts.live.output_topic)
        state = broker.group_state(group)
        if state not in RESTING:
            yield f"the consumer group {group} has members ({state}): stop them before the cut-over"


def check_reader(broker: BrokerReader, group: str, topic: str) -> Vector:
    """Return the positions of a consumer group in an output.

    Raises:
        RefusedError: It never committed one.
    """
    read = broker.group_offsets(group, topic)
    if not read:
        cure = "Fix the name, or leave it out: it never read that output"
        raise RefusedError("consumer_groups", f"{group} has no position on {topic}", cure)
    return read


def _disk(facts: Facts) -> Iterable[str]:
    needed = max(LEAST_BYTES, facts.records * SPILL_BYTES)
    if facts.free_bytes < needed:
        yield f"{facts.free_bytes:,} bytes are free on the data's disk, {needed:,} may be needed"
