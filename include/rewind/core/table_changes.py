"""What others did to a Delta table that only we write, and which of its commits still stand after it.

Delta keeps the write ids of a table through RESTORE, DELETE and overwrite: a table may hold an id whose rows are gone
(https://github.com/delta-io/delta/issues/1813). So an id, or the record of a commit, is believed only while this says
that the commit stands. Versions are half-open ranges, as offsets are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rewind.core.offsets import OffsetRange, merged

ADDED, REMOVED, RESTORED, CHANGED = "added", "removed", "restored", "changed"
"""Rows came; some went; all are as an older version had them; anything else: what is there may be other rows."""
TAKES = (REMOVED, RESTORED, CHANGED)
"""What takes rows away, or may have."""


@dataclass(frozen=True, order=True)
class Change:
    """A commit that was not ours, and changed data.

    Attributes:
        version: The version it made.
        kind: `ADDED`, `REMOVED`, `RESTORED` or `CHANGED`.
        operation: What Delta calls it.
        by: Who made it, as far as its log tells.
        at: When, in milliseconds since 1970.
        restored: The version whose rows it brought back; of `RESTORED` alone.
        rows: Rows it took away; None when its log does not tell.
    """

    version: int
    kind: str
    operation: str
    by: str
    at: int
    restored: int | None = None
    rows: int | None = None


def effective(changes: Iterable[Change], version: int) -> list[Change]:
    """Return the changes that a version shows, newest first: those that a restore undid are left out."""
    found, end = [], version + 1
    for change in sorted(changes, reverse=True):
        if change.version < end:
            found.append(change)
            end = end if change.restored is None else change.restored + 1
    return found


def fallen(changes: Iterable[Change], version: int, kinds: Collection[str] = TAKES) -> list[OffsetRange]:
    """Return the versions up to one whose commits it no longer surely shows, in order.

    Args:
        changes: All changes of the table.
        version: The version that is looked at.
        kinds: Which kinds of changes count.
    """
    shown = (change for change in effective(changes, version) if change.kind in kinds)
    return merged(OffsetRange(0 if c.restored is None else c.restored + 1, c.version + 1) for c in shown)


def holds(spans: Sequence[OffsetRange], version: int) -> bool:
    """Return whether a version is one of some."""
    return any(span.start <= version < span.end for span in spans)


def told(change: Change) -> str:
    """Return a change as text: `RESTORE to version 4 at version 7 by root at 2025-09-04T10:00:00Z`."""
    to = "" if change.restored is None else f" to version {change.restored}"
    instant = datetime.fromtimestamp(change.at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{change.operation}{to} at version {change.version} by {change.by} at {instant}"
