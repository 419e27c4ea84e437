"""What a commit of a table did that only we write: told by what it moves, not by what it is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from rewind.adapters.delta_log import LogEntry
from rewind.core.table_changes import ADDED, CHANGED, REMOVED, RESTORED, Change
from rewind.registry.mirrors.table_log import Sight


@dataclass(frozen=True)
class Watched:
    """A table to be watched.

    Attributes:
        name: Its name in the registry.
        table_id: The id that we gave it; empty where it has none.
        path: Its path.
        ours: Whether a commit of rows is one of ours.
        cure: What to do when nothing can be believed any more.
        compacts: Whether we ourselves rewrite its files without a change of data.
    """

    name: str
    table_id: str
    path: str
    ours: Callable[[LogEntry], bool]
    cure: str
    compacts: bool = False


def change_of(entry: LogEntry, watched: Watched, seen: Sight | None) -> Change | None:
    """Return what a commit changed, None where it is ours or changes no data."""
    kind, restored = _kind(entry, watched, seen)
    if kind is None:
        return None
    deleted = entry.metrics.get("numDeletedRows")
    rows = int(deleted) if kind == REMOVED and deleted is not None else None
    return Change(entry.version, kind, entry.operation, entry.by, entry.timestamp, restored, rows)


def _kind(entry: LogEntry, watched: Watched, seen: Sight | None) -> tuple[str | None, int | None]:
    took = entry.took or (entry.operation == "WRITE" and entry.removed and not _compacted(entry, watched))
    if entry.operation == "RESTORE" and (took or entry.put or _other_columns(entry, seen)):
        # One to a time does not say to which version.
        to = str(entry.parameters.get("version"))
        return (RESTORED, int(to)) if to.isdigit() else (CHANGED, None)
    if "REPLACE TABLE" in entry.operation or _lost_columns(entry, seen):
        return CHANGED, None
    if watched.ours(entry):
        return None, None
    if took:
        return (REMOVED if entry.operation == "DELETE" else CHANGED), None
    return (ADDED if entry.put else None), None


def _compacted(entry: LogEntry, watched: Watched) -> bool:
    """Return whether a write that claims to change no data has as many rows as before: OPTIMIZE can do nothing else."""
    rows = entry.metrics.get("numOutputRows")
    return watched.compacts and not entry.took and entry.metrics.get("numDeletedRows", rows) == rows


def _other_columns(entry: LogEntry, seen: Sight | None) -> bool:
    return entry.table is not None and seen is not None and entry.table[1] != seen.columns


def _lost_columns(entry: LogEntry, seen: Sight | None) -> bool:
    """Return whether a commit takes columns away, or gives the table another id."""
    if entry.table is None or seen is None or not seen.delta_id:
        return False
    delta_id, columns = entry.table
    return delta_id != seen.delta_id or not set(seen.columns) <= set(columns)


def stated(entry: LogEntry, prefixes: tuple[str, ...]) -> bool:
    """Return whether a commit has a write id with one of some prefixes, and states its offsets as ours do."""
    if entry.transaction is None or not entry.transaction[0].startswith(prefixes):
        return False
    try:
        body = json.loads(entry.metadata)
    except ValueError:
        return False
    return isinstance(body, dict) and "ranges" in body
