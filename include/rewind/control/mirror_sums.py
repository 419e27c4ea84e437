"""What the commits of each mirror sum up to, from those that came since the last look: there are ever more of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from rewind.control import schema
from rewind.core.offsets import Vector

_table = schema.mirror_commits
NEVER = datetime.fromisoformat("1970-01-01")
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
    sums = _added(connection, {key: known.get(key) for key in recorded})
    # A commit of an older version that came late, or another registry in the place of the one that was known.
    wrong = [key for key, there in recorded.items() if (sums[key].commits, sums[key].version) != there]
    sums |= _added(connection, dict.fromkeys(wrong))
    _KNOWN[url] = sums
    return {one.topic: one for one in sorted(sums.values(), key=lambda one: (one.at, one.version))}


def _recorded(connection: Connection) -> dict[Key, tuple[int, int]]:
    """Return how many commits of each are recorded, and the newest version."""
    of, told = (_table.c.topic, _table.c.topic_id), (func.count(), func.max(_table.c.version))
    rows = connection.execute(select(*of, *told).group_by(*of))
    return {(topic, topic_id): (int(count), int(version)) for topic, topic_id, count, version in rows}


def _added(connection: Connection, known: Mapping[Key, Sum | None]) -> dict[Key, Sum]:
    if not known:
        return {}
    wanted = [_since(key, before) for key, before in known.items()]
    rows: dict[Key, list[Any]] = defaultdict(list)
    columns = (_table.c.topic, _table.c.topic_id, _table.c.version, _table.c.ranges, _table.c.counts, _table.c.at)
    for row in connection.execute(select(*columns).where(or_(*wanted)).order_by(_table.c.version)):
        rows[row.topic, row.topic_id].append(row)
    return {key: _summed(before or Sum(*key), rows[key]) for key, before in known.items()}


def _since(key: Key, before: Sum | None) -> Any:
    mine = and_(_table.c.topic == key[0], _table.c.topic_id == key[1])
    return mine if before is None else and_(mine, _table.c.version > before.version)


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
