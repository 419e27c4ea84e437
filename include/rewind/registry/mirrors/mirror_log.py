"""What the mirror's commits hold, so that planning never scans it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from rewind.core.model import MirrorState, Topic
from rewind.core.offsets import OffsetRange, Ranges, merged, missing, without
from rewind.core.periods import Span
from rewind.core.table_changes import CHANGED, RESTORED, Change, fallen, holds
from rewind.registry import schema
from rewind.registry.database import now

_table = schema.mirror_commits


@dataclass(frozen=True)
class Commit:
    """One data commit of a mirror.

    Attributes:
        version: Version of the Delta table it made.
        topic_id: Id of the mirrored topic.
        ranges: Offsets read, per partition.
        counts: Records found in them, per partition.
        holes: Offsets in `ranges` at which no record was found.
        bytes: Bytes of the files it added.
        times: Earliest and latest Kafka timestamp of its records, in milliseconds since 1970, per partition; absent
            where they are not known, as in commits of older releases.
    """

    version: int
    topic_id: str
    ranges: Ranges
    counts: Mapping[int, int]
    holes: Mapping[int, list[OffsetRange]]
    bytes: int
    times: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the body that also travels in the commit's user metadata."""
        return {
            "topic_id": self.topic_id,
            "ranges": {str(p): [r.start, r.end] for p, r in self.ranges.items()},
            "counts": {str(p): n for p, n in self.counts.items()},
            "holes": {str(p): [[r.start, r.end] for r in rs] for p, rs in self.holes.items()},
            "bytes": self.bytes,
            "times": {str(p): list(bounds) for p, bounds in self.times.items()},
        }


def from_json(version: int, body: Mapping[str, Any]) -> Commit:
    """Return the commit whose body `to_json` made."""
    return Commit(
        version=version,
        topic_id=body["topic_id"],
        ranges={int(p): OffsetRange(*r) for p, r in body["ranges"].items()},
        counts={int(p): n for p, n in body["counts"].items()},
        holes={int(p): [OffsetRange(*r) for r in rs] for p, rs in body["holes"].items()},
        bytes=body["bytes"],
        times={int(p): (first, last) for p, (first, last) in (body.get("times") or {}).items()},
    )


def record(connection: Connection, topic: str, made: Commit) -> None:
    """Record a commit; harmless when it is recorded already."""
    key = (_table.c.topic == topic) & (_table.c.topic_id == made.topic_id) & (_table.c.version == made.version)
    if connection.execute(select(_table.c.version).where(key)).first() is None:
        values = made.to_json() | {"topic": topic, "version": made.version, "at": now()}
        connection.execute(insert(_table).values(**values))


def commits(connection: Connection, topic: str, topic_id: str) -> list[Commit]:
    """Return the commits of a mirrored topic, in order."""
    where = (_table.c.topic == topic) & (_table.c.topic_id == topic_id)
    return [_commit(row) for row in connection.execute(select(_table).where(where).order_by(_table.c.version))]


def topics(connection: Connection) -> list[str]:
    """Return the topics that have been mirrored, in order."""
    return sorted(connection.execute(select(_table.c.topic).distinct()).scalars())


def newest_id(connection: Connection, topic: str) -> str | None:
    """Return the id of the topic that was mirrored last under a name, None when none was."""
    query = (
        select(_table.c.topic_id).where(_table.c.topic == topic).order_by(_table.c.at.desc(), _table.c.version.desc())
    )
    return connection.execute(query.limit(1)).scalar_one_or_none()


def record_deletion(
    connection: Connection, topic: str, topic_id: str, partition: int, gone: OffsetRange, why: str
) -> None:
    """Record that offsets were deleted from the mirror on purpose: a legal hole from now on."""
    values = {"topic": topic, "topic_id": topic_id, "partition": partition, "reason": why, "at": now()}
    connection.execute(insert(schema.mirror_deletions).values(start=gone.start, end=gone.end, **values))


def deletions(connection: Connection, topic: str, topic_id: str) -> dict[int, list[OffsetRange]]:
    """Return the offsets that were deleted on purpose, per partition."""
    table = schema.mirror_deletions
    rows = connection.execute(select(table).where((table.c.topic == topic) & (table.c.topic_id == topic_id)))
    found: dict[int, list[OffsetRange]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append(OffsetRange(row.start, row.end))
    return {p: merged(parts) for p, parts in found.items()}


def state(
    made: Iterable[Commit], deleted: Mapping[int, list[OffsetRange]], topic: Topic, transactional: bool
) -> MirrorState | None:
    """Return what the mirror of a topic holds; None when it has no commit of this topic's id.

    Holes of a compacted topic, or of one that is written by transactions, are legal: compaction and commit
    markers leave offsets without records. Those of any other topic are legal only where a deletion is recorded.
    """
    known = [commit for commit in made if commit.topic_id == topic.id]
    if not known:
        return None
    partitions = sorted({p for commit in known for p in commit.ranges})
    covered = {p: merged(c.ranges[p] for c in known if p in c.ranges) for p in partitions}
    holes = {p: merged(h for c in known for h in c.holes.get(p, [])) for p in partitions}
    holes = {p: merged([*parts, *deleted.get(p, [])]) for p, parts in holes.items()}
    legal = dict(holes) if topic.compacted or transactional else {p: deleted.get(p, []) for p in partitions}
    return MirrorState(
        version=known[-1].version,
        topic_id=topic.id,
        covered=covered,
        holes=holes,
        legal_holes=legal,
        records=sum(n for c in known for n in c.counts.values()),
        bytes=sum(c.bytes for c in known),
    )


def void(
    made: Iterable[Commit], deleted: Mapping[int, list[OffsetRange]], changes: Sequence[Change], version: int
) -> dict[int, list[OffsetRange]]:
    """Return the offsets that a mirror can no longer be believed to hold, though commits of it read them.

    Others restored the table to before these commits, or rewrote it. Where rows were only deleted, counts and proofs
    see exactly what is gone, so that this is not asked. What a later commit read again stands.

    Args:
        made: The commits of one topic id.
        deleted: Offsets that were deleted on purpose.
        changes: What others did to the table.
        version: The version that is read.
    """
    spans = fallen(changes, version, (RESTORED, CHANGED))
    if not spans:
        return {}
    read: dict[bool, dict[int, list[OffsetRange]]] = {True: {}, False: {}}
    for commit in made:
        if commit.version <= version:
            for p, part in commit.ranges.items():
                read[holds(spans, commit.version)].setdefault(p, []).append(part)
    lost = {p: without(merged(parts), merged(read[False].get(p, []))) for p, parts in read[True].items()}
    found = {p: without(parts, deleted.get(p, [])) for p, parts in lost.items()}
    return {p: parts for p, parts in found.items() if parts}


def deleted_offsets(connection: Connection, topic: str) -> int:
    """Return how many offsets of a mirror were deleted on purpose, of all ids of its topic."""
    table = schema.mirror_deletions
    query = select(func.sum(table.c.end - table.c.start)).where(table.c.topic == topic)
    return int(connection.execute(query).scalar() or 0)


def spans(made: Iterable[Commit], deleted: Mapping[int, list[OffsetRange]]) -> dict[int, list[Span]]:
    """Return what commits recorded of the times of their records, by partition, in the order of offsets."""
    found: dict[int, list[Span]] = {}
    for commit in made:
        for p, wanted in commit.ranges.items():
            there = missing(wanted, commit.holes.get(p, []))
            if there:
                part = OffsetRange(there[0].start, there[-1].end)
                whole = not any(len(part.overlap(gone)) for gone in deleted.get(p, []))
                found.setdefault(p, []).append(Span(part, commit.counts.get(p, 0), commit.times.get(p), whole))
    return {p: sorted(parts, key=lambda span: span.part) for p, parts in sorted(found.items())}


def newest_version(connection: Connection, topic: str) -> int:
    """Return the newest version whose commit is recorded, -1 before the first."""
    found = connection.execute(select(func.max(_table.c.version)).where(_table.c.topic == topic)).scalar()
    return -1 if found is None else int(found)


def _commit(row: Row[Any]) -> Commit:
    return from_json(row.version, dict(row._mapping))
