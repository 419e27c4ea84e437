"""What a check of a rewind found and how far it came, so that the next one goes on from there: facts of a rewind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from rewind.core.horizon import Frontier
from rewind.core.model import Generation
from rewind.core.offsets import Vector
from rewind.registry import observation, rewinds, schema
from rewind.registry.database import vector_from_json, vector_to_json

_FACT = "checked."


@dataclass(frozen=True)
class Checked:
    """One check.

    Attributes:
        attempt: The attempt at `validate` that made it.
        of: What it was a check of (`identity`).
        floor: First source offset compared, per partition.
        frontier: How far it came.
        counts: Rows by class.
        fields: Rows by class and differing field.
        sample: The first differences.
        nulls: Values and nulls by column and side (`null_gate.Nulls`); None where nobody had to count them.
    """

    attempt: int
    of: str
    floor: Vector
    frontier: Frontier
    counts: Mapping[str, int]
    fields: Mapping[str, Mapping[str, int]]
    sample: Sequence[Mapping[str, Any]]
    nulls: Mapping[str, Any] | None


def identity(live: Generation, candidate: Generation, backfilled: int) -> str:
    """Return what tells a check from those of other outputs, or by other rules.

    Args:
        live: The one job.
        candidate: The other.
        backfilled: The attempt at the backfill that made its output.
    """
    body = [live.job_id, candidate.job_id, backfilled, live.frozen, candidate.frozen]
    return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()


def keep(connection: Connection, rewind_id: str, made: Checked) -> None:
    """Record a check that was answered."""
    body = {
        "of": made.of,
        "floor": vector_to_json(made.floor),
        "frontier": observation.to_json(made.frontier),
        "counts": dict(made.counts),
        "fields": {name: dict(found) for name, found in made.fields.items()},
        "sample": list(made.sample),
        "nulls": made.nulls,
    }
    rewinds.fix(connection, rewind_id, f"{_FACT}{made.attempt}", body)


def last(connection: Connection, rewind_id: str, of: str) -> Checked | None:
    """Return the newest check of an identity, or None."""
    table = schema.facts
    mine = (table.c.rewind_id == rewind_id) & table.c.name.startswith(_FACT)
    rows = connection.execute(select(table.c.name, table.c.value).where(mine)).all()
    found = [_checked(int(row.name.removeprefix(_FACT)), row.value) for row in rows if row.value["of"] == of]
    return max(found, key=lambda one: one.attempt, default=None)


def _checked(attempt: int, body: Mapping[str, Any]) -> Checked:
    return Checked(
        attempt,
        body["of"],
        vector_from_json(body["floor"]),
        observation.from_json(body["frontier"]),
        body["counts"],
        body["fields"],
        body["sample"],
        body["nulls"],
    )
