"""What the commits of each mirror sum up to, from those that came since the last look: there are ever more of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, or_, select

from rewind.core.offsets import Vector
from rewind.registry import schema

_table = schema.mirror_commits
NEVER = datetime.fromisoformat("1970-01-01")
_ASKED, _SHOWN = ("topic", "topic_id", "version"), ("topic", "topic_id", "version", "ranges", "counts", "at")
Key = tuple[str, str]
"""A topic and its id."""


@dataclass(frozen=True)
class Sum:
    """What a mirror holds.

    Attributes:
        topic: The topic.
        topic_id: Its id.
        version: Newest version of its table.
        commits: How many commits are recorded.
        position: Its committed source position.
        records: Records it holds.
        at: When it last committed, UTC.
    """

    topic: str
    topic_id: str
    version: int = -1
    commits: int = 0
    position: Vector = field(default_factory=dict)
    records: int = 0
    at: datetime = NEVER


_KNOWN: dict[str, dict[Key, Sum]] = {}
"""By registry; a commit is recorded once and never changed."""


def newest(connection: Connection, url: str) -> dict[str, Sum]:
    """Return what the mirror of each topic holds, of the topic's newest id, by topic.

    Args:
        connection: To the registry.
        url: Of the registry.
    """
    known = _KNOWN.get(url, {})
    recorded = _recorded(connection)
    sums = {key: known.get(key, Sum(*key)) for key in recorded}
    sums |= _added(connection, _behind(sums, recorded))
    # A commit of an older version that came late, or another registry in the place of the one that was known.
    sums |= _added(connection, [Sum(one.topic, one.topic_id) for one in _behind(sums, recorded)])
    _KNOWN[url] = sums
    return {one.topic: one for one in sorted(sums.values(), key=lambda one: (one.at, one.version))}


def _recorded(connection: Connection) -> dict[Key, tuple[int, int]]:
    """Return how many commits of each are recorded, and the newest version."""
    of, told = (_table.c.topic, _table.c.topic_id), (func.count(), func.max(_table.c.version))
    rows = connection.execute(select(*of, *told).group_by(*of))
    return {(topic, topic_id): (int(count), int(version)) for topic, topic_id, count, version in rows}


def _behind(sums: Mapping[Key, Sum], recorded: Mapping[Key, tuple[int, int]]) -> list[Sum]:
    return [sums[key] for key, there in recorded.items() if (sums[key].commits, sums[key].version) != there]


def _added(connection: Connection, known: Sequence[Sum]) -> dict[Key, Sum]:
    """Return sums with the commits of newer versions added."""
    if not known:
        return {}
    values = {f"{name}_{n}": getattr(one, name) for n, one in enumerate(known) for name in _ASKED}
    rows: dict[Key, list[Any]] = defaultdict(list)
    for row in connection.execute(_since(len(known)), values):
        rows[row.topic, row.topic_id].append(row)
    return {(one.topic, one.topic_id): _summed(one, rows[one.topic, one.topic_id]) for one in known}


@lru_cache(maxsize=16)
def _since(count: int) -> Any:
    """Return the query for the newer commits of so many mirrors; to make it costs more than to ask it."""
    each = [
        and_(
            _table.c.topic == bindparam(f"topic_{n}"),
            _table.c.topic_id == bindparam(f"topic_id_{n}"),
            _table.c.version > bindparam(f"version_{n}"),
        )
        for n in range(count)
    ]
    return select(*(_table.c[name] for name in _SHOWN)).where(or_(*each)).order_by(_table.c.version)


def _summed(found: Sum, rows: Iterable[Any]) -> Sum:
    for row in rows:
        ends = {int(p): max(end, found.position.get(int(p), 0)) for p, (_, end) in row.ranges.items()}
        found = replace(
            found,
            version=row.version,
            commits=found.commits + 1,
            position=found.position | ends,
            records=found.records + sum(row.counts.values()),
            at=row.at,
        )
    return found
