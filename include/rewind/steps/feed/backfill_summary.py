"""What a backfill did, as its evidence tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rewind.core.offsets import OffsetRange, to_spark_json
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import chunk_log, generations
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log


def evidence(settings: Settings, rewind_id: str, plan: Plan) -> dict[str, Any]:
    """Return what was read in how many chunks, where it ended, and which offsets were accepted as gaps or deleted."""
    with writing(settings.registry_url) as connection:
        done = chunk_log.read(connection, rewind_id)
        handoff = generations.read(connection, plan.job_id).handoff or {}
        deleted = mirror_log.deletions(connection, plan.topic, plan.topic_id)
    return {
        "chunks": len(done),
        "records": sum(c.rows or 0 for c in done),
        "repeats": sum(c.repeats or 0 for c in done),
        "handoff": to_spark_json(plan.topic, handoff),
        "accepted_gaps": _as_json(plan.accepted_gaps),
        "deleted": _as_json(deleted),
    }


def _as_json(parts: Mapping[int, Sequence[OffsetRange]]) -> dict[str, list[list[int]]]:
    return {str(p): [[part.start, part.end] for part in ranges] for p, ranges in parts.items()}
