"""What proofs of mirrors found, and for which offsets of which version they hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from rewind.core import mirror_proof
from rewind.core.mirror_proof import Proof
from rewind.core.offsets import OffsetRange
from rewind.registry import schema
from rewind.registry.database import now

_table = schema.mirror_proofs


@dataclass(frozen=True)
class Proven:
    """A recorded proof.

    Attributes:
        proof_id: Its id, also the name of its evidence.
        version: Version of the mirror's table.
        holds_for: Per partition the offsets that it and those before it have proven at that version.
        verdict: `whole` or `damaged`.
        counts: What was found, in numbers.
        told: The same as lines.
        asked_by: The rewind that it was made for, or the run that asked.
        at: When it was made last, UTC.
    """

    proof_id: str
    version: int
    holds_for: Mapping[int, Sequence[OffsetRange]]
    verdict: str
    counts: Mapping[str, int]
    told: Sequence[str]
    asked_by: str
    at: datetime


def proof_id(proof: Proof, asked_by: str) -> str:
    """Return the id of a proof: whoever asks again for the same offsets of the same version gets the same."""
    body = [proof.topic, proof.topic_id, proof.version, mirror_proof.plain(proof.ranges), asked_by]
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()[:16]


def record(connection: Connection, proof: Proof, holds_for: Mapping[int, Sequence[OffsetRange]], asked_by: str) -> None:
    """Record a proof, in place of one of the same id."""
    values: dict[str, Any] = {
        "topic": proof.topic,
        "topic_id": proof.topic_id,
        "version": proof.version,
        "ranges": mirror_proof.plain(proof.ranges),
        "holds_for": {str(p): [[r.start, r.end] for r in parts] for p, parts in holds_for.items()},
        "verdict": proof.verdict,
        "counts": proof.counts(),
        "told": mirror_proof.summary(proof),
        "asked_by": asked_by,
        "at": now(),
    }
    made = proof_id(proof, asked_by)
    if not connection.execute(update(_table).where(_table.c.proof_id == made).values(**values)).rowcount:
        connection.execute(insert(_table).values(proof_id=made, **values))


def newest(connection: Connection, topic: str, topic_id: str, verdict: str | None = None) -> Proven | None:
    """Return the newest proof of a mirror, or the newest of a verdict; None when there is none."""
    where = (_table.c.topic == topic) & (_table.c.topic_id == topic_id)
    if verdict is not None:
        where &= _table.c.verdict == verdict
    query = select(_table).where(where).order_by(_table.c.at.desc(), _table.c.version.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else _proven(row)


def newest_of_all(connection: Connection) -> dict[tuple[str, str], Proven]:
    """Return the newest proof of each mirror, by topic and id."""
    mirror = (_table.c.topic, _table.c.topic_id)
    order = func.row_number().over(partition_by=mirror, order_by=(_table.c.at.desc(), _table.c.version.desc()))
    numbered = select(_table.c.proof_id, order.label("nth")).subquery()
    newest_ids = select(numbered.c.proof_id).where(numbered.c.nth == 1)
    rows = connection.execute(select(_table).where(_table.c.proof_id.in_(newest_ids)))
    return {(row.topic, row.topic_id): _proven(row) for row in rows}


def _proven(row: Row[Any]) -> Proven:
    holds_for = {int(p): [OffsetRange(*part) for part in parts] for p, parts in row.holds_for.items()}
    return Proven(row.proof_id, row.version, holds_for, row.verdict, row.counts, row.told, row.asked_by, row.at)
