"""What others did to the table of a mirror, and whether the stream that writes it may go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from rewind.core import names
from rewind.core.mirror_proof import WHOLE
from rewind.core.offsets import OffsetRange, all_told, merged, missing, within
from rewind.core.table_changes import REMOVED, TAKES, Change, effective, told
from rewind.registry.mirrors import mirror_log, proof_log, table_log
from rewind.registry.mirrors.mirror_log import Commit

Parts = dict[int, list[OffsetRange]]


def recorded(connection: Connection, topic: str) -> list[Change]:
    """Return what others were seen to do to the mirror of a topic, in order."""
    return table_log.changes(connection, names.mirror_owner(topic), "")


def void(connection: Connection, topic: str, topic_id: str, changes: Sequence[Change], version: int) -> Parts:
    """Return the offsets that a version of a mirror can no longer be believed to hold (`mirror_log.void`)."""
    if not any(change.kind in TAKES for change in changes):
        return {}
    made = mirror_log.commits(connection, topic, topic_id)
    return mirror_log.void(made, mirror_log.deletions(connection, topic, topic_id), changes, version)


def said(changes: Sequence[Change], version: int) -> str:
    """Return what took rows of a version away, as text, oldest first."""
    shown = (change for change in reversed(effective(changes, version)) if change.kind in TAKES)
    return "; ".join(map(told, shown))


def problem(
    connection: Connection, topic: str, topic_id: str, changes: Sequence[Change], version: int, start: Mapping[int, int]
) -> str:
    """Return why the stream of a mirror must not write on, or nothing.

    Args:
        connection: To the registry.
        topic: The topic.
        topic_id: Its id.
        changes: What others did to the table.
        version: Its newest version.
        start: What the stream reads from here on, it writes again: per partition the first offset.
    """
    lost = void(connection, topic, topic_id, changes, version)
    behind = {p: within(parts, [OffsetRange(0, start[p])]) if p in start else parts for p, parts in lost.items()}
    first = {p: OffsetRange(parts[0].start, parts[-1].end) for p, parts in behind.items() if parts}
    if first:
        cure = (
            "RESTORE it to the version before, or drain the mirror and move the folder of its checkpoint away: it "
            "reads again what Kafka still holds. What is gone for ever is to be named by `rewind record-deletion`"
        )
        return f"mirror of {topic}: {said(changes, version)}. It no longer surely holds {all_told(first)}. {cure}"
    removed = [change for change in effective(changes, version) if change.kind == REMOVED]
    if not removed or _recorded_as_deleted(connection, topic, removed) or _proven(connection, topic, topic_id, removed):
        return ""
    cure = (
        f"If it was on purpose, say so with `rewind record-deletion {topic}`; else RESTORE it to version "
        f"{min(removed).version - 1}. Then see with `rewind prove --topic {topic}` that nothing is lost"
    )
    return f"mirror of {topic}: {said(changes, version)}. {cure}"


def _recorded_as_deleted(connection: Connection, topic: str, removed: Sequence[Change]) -> bool:
    """Return whether no more rows were deleted than offsets are recorded as deleted: which ones, a proof tells."""
    rows = [change.rows for change in removed]
    known = sum(n for n in rows if n is not None)
    return None not in rows and known <= mirror_log.deleted_offsets(connection, topic)


def _proven(connection: Connection, topic: str, topic_id: str, removed: Sequence[Change]) -> bool:
    """Return whether a proof since has found all whole that was there."""
    last, newest = proof_log.newest(connection, topic, topic_id, WHOLE), max(removed).version
    if last is None or last.version < newest:
        return False
    made = mirror_log.commits(connection, topic, topic_id)
    return all(
        not missing(part, last.holds_for.get(p, ()))
        for p, parts in _read_before(made, newest).items()
        for part in parts
    )


def _read_before(made: Sequence[Commit], version: int) -> Parts:
    parts: Parts = {}
    for commit in made:
        if commit.version < version:
            for p, part in commit.ranges.items():
                parts.setdefault(p, []).append(part)
    return {p: merged(each) for p, each in parts.items()}
