"""Records that were deleted from a mirror on purpose: recorded, so that the holes which they leave are legal."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.offsets import OffsetRange, merged, missing
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log


@dataclass(frozen=True)
class Deletion:
    """What is to be recorded.

    Attributes:
        topic: The mirrored topic.
        topic_id: Its id.
        partition: The partition.
        gone: Offsets that are not recorded as deleted yet, in order; empty when all are.
    """

    topic: str
    topic_id: str
    partition: int
    gone: tuple[OffsetRange, ...]


def look(connection: Connection, topic: str, partition: int, start: int, end: int) -> Deletion:
    """Return what would be recorded of a range, half-open.

    Raises:
        RefusedError: It is none, or the mirror does not cover it.
    """
    if not 0 <= start < end:
        raise RefusedError("to", f"[{start}, {end}) is no range of offsets", "Name the offset after the last one")
    topic_id = mirror_log.newest_id(connection, topic)
    if topic_id is None:
        raise RefusedError("topic", f"{topic!r} has no mirror", "Fix the name; `rewind status` shows the mirrors")
    wanted = OffsetRange(start, end)
    commits = mirror_log.commits(connection, topic, topic_id)
    covered = merged(commit.ranges[partition] for commit in commits if partition in commit.ranges)
    if missing(wanted, covered):
        there = "; ".join(f"[{part.start}, {part.end})" for part in covered) or "nothing"
        problem = f"the mirror of {topic} covers {there} of partition {partition}"
        raise RefusedError("from", problem, "Choose offsets that it covers")
    known = mirror_log.deletions(connection, topic, topic_id).get(partition, [])
    return Deletion(topic, topic_id, partition, tuple(missing(wanted, known)))


def record(url: str, topic: str, partition: int, start: int, end: int, reason: str) -> Deletion:
    """Record that offsets were deleted from a mirror, and return what was new; harmless when all are recorded.

    Args:
        url: URL of the registry.
        topic: The mirrored topic.
        partition: The partition.
        start: First offset.
        end: Offset after the last one.
        reason: Why, for the history.

    Raises:
        RefusedError: No range that the mirror covers, or no reason.
    """
    if not reason.strip():
        raise RefusedError("reason", "is empty", "Say on whose demand the records were deleted, without personal data")
    with side_effect("deletion.record"), writing(url) as connection:
        found = look(connection, topic, partition, start, end)
        for part in found.gone:
            mirror_log.record_deletion(connection, topic, found.topic_id, partition, part, reason)
    return found
