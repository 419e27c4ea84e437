"""How far two outputs have been compared, and what was found since a switch: facts of a rewind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, select

from rewind.core.horizon import Frontier
from rewind.registry import rewinds, schema
from rewind.registry.database import vector_from_json, vector_to_json
from rewind.registry.verdicts import Verdict

_LOOK = "observed."
SAMPLE = 20


@dataclass(frozen=True)
class Look:
    """One comparison of what both jobs wrote since the one before.

    Attributes:
        after: How long after the switch the positions were read up to which it compared.
        frontier: How far it came.
        counts: Rows by class.
        differences: Of those the classes that the approved verdict lacked.
        sample: Some of the differences.
    """

    after: timedelta
    frontier: Frontier
    counts: Mapping[str, int]
    differences: Mapping[str, int]
    sample: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Observed:
    """All comparisons since a switch.

    Attributes:
        looks: How many there were.
        after: How long after the switch the last one was; 0 before the first.
        rows: Rows compared.
        differences: Rows by class that the approved verdict lacked.
        sample: Some of the differences.
        repeated: Rows that an output holds again, counted by source coordinate or by version of a key.
    """

    looks: int
    after: timedelta
    rows: int
    differences: Mapping[str, int]
    sample: Sequence[Mapping[str, Any]]
    repeated: int = 0

    def told(self) -> str:
        """Return one line for a log."""
        found = ", ".join(f"{count:,} {name}" for name, count in self.differences.items())
        differs = f"DIFFERENCES: {found}" if found else "none differs"
        again = f", {self.repeated:,} repeated" if self.repeated else ""
        return f"{self.rows:,} rows compared since the switch, {differs}{again}"


def keep_frontier(connection: Connection, rewind_id: str, attempt: int, frontier: Frontier) -> None:
    """Record how far the verdict of an attempt compared."""
    rewinds.fix(connection, rewind_id, f"frontier.{attempt}", to_json(frontier))


def frontier_of(connection: Connection, rewind_id: str, verdict: Verdict) -> Frontier:
    """Return how far a verdict compared; after one of an older release both outputs have to be read whole."""
    body = rewinds.fact(connection, rewind_id, f"frontier.{verdict.attempt}")
    return Frontier(verdict.ceiling) if body is None else from_json(body)


def to_json(frontier: Frontier) -> dict[str, Any]:
    """Return a frontier as JSON takes it."""
    unread = {topic: vector_to_json(vector) for topic, vector in frontier.unread.items()}
    ends = {topic: vector_to_json(vector) for topic, vector in frontier.ends.items()}
    return {"ceiling": vector_to_json(frontier.ceiling), "unread": unread, "closed": frontier.closed, "ends": ends}


def from_json(body: Mapping[str, Any]) -> Frontier:
    """Return the frontier that `to_json` gave."""
    unread = {topic: vector_from_json(vector) for topic, vector in body["unread"].items()}
    ends = {topic: vector_from_json(vector) for topic, vector in body.get("ends", {}).items()}
    # A release before pipelines with state recorded no watermark.
    return Frontier(vector_from_json(body["ceiling"]), unread, body.get("closed", 0), ends)


def record(connection: Connection, rewind_id: str, attempt: int, look: Look) -> None:
    """Record a comparison, and how far it came, in one."""
    body = {
        "after_seconds": look.after.total_seconds(),
        "frontier": to_json(look.frontier),
        "counts": dict(look.counts),
        "differences": dict(look.differences),
        "sample": list(look.sample),
    }
    rewinds.fix(connection, rewind_id, f"{_LOOK}{attempt}", body)


def read(connection: Connection, rewind_id: str) -> Observed:
    """Return what the comparisons since the switch found."""
    return _summed(_looks(connection, [rewind_id]).get(rewind_id, []))


def read_all(connection: Connection, rewind_ids: Sequence[str]) -> dict[str, Observed]:
    """Return the same of rewinds, by rewind; those without a comparison are left out."""
    return {rewind_id: _summed(bodies) for rewind_id, bodies in _looks(connection, rewind_ids).items()}


def _summed(bodies: Sequence[Mapping[str, Any]]) -> Observed:
    differences: Counter[str] = Counter()
    for body in bodies:
        differences.update(body["differences"])
    return Observed(
        looks=len(bodies),
        after=timedelta(seconds=bodies[-1]["after_seconds"] if bodies else 0),
        rows=sum(body["counts"]["rows"] for body in bodies),
        differences=dict(differences),
        sample=[row for body in bodies for row in body["sample"]][:SAMPLE],
        repeated=sum(body["counts"].get("repeated", 0) for body in bodies),
    )


def frontier(connection: Connection, rewind_id: str) -> Frontier | None:
    """Return how far was compared since a switch; None when the switch, by an older release, did not record it."""
    bodies = _looks(connection, [rewind_id]).get(rewind_id, [])
    switched = rewinds.fact(connection, rewind_id, "cut_over") or {}
    found = bodies[-1]["frontier"] if bodies else switched.get("frontier")
    return None if found is None else from_json(found)


def _looks(connection: Connection, rewind_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    table = schema.facts
    mine = table.c.rewind_id.in_(rewind_ids) & table.c.name.startswith(_LOOK)
    rows = connection.execute(select(table.c.rewind_id, table.c.name, table.c.value).where(mine)).all()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: int(row.name.removeprefix(_LOOK))):
        found[row.rewind_id].append(row.value)
    return found
