"""What a person may change while a rewind runs: the pace of its backfill, and the end of its observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from rewind.registry import audit, rewinds
from rewind.registry.database import writing

FINISH = "finish_now"
"""The fact that ends an observation at its next look."""


def pause(registry_url: str, rewind_id: str, person: str, *, paused: bool) -> int | None:
    """Pause the backfill of an active rewind after its chunk, or let it go on; return its limit in records a second.

    Raises:
        RefusedError: The rewind is unknown or not active.
    """
    with writing(registry_url) as connection:
        _, limit = rewinds.controls(connection, rewind_id)
        rewinds.set_controls(connection, rewind_id, paused=paused, records_per_second=limit)
        _note(connection, person, "pause" if paused else "resume", rewind_id)
    return limit


def throttle(registry_url: str, rewind_id: str, person: str, records_per_second: int | None) -> bool:
    """Limit the backfill of an active rewind, None lifts the limit; return whether it is paused.

    Raises:
        RefusedError: The rewind is unknown or not active, or the limit is below 1 or too high.
    """
    with writing(registry_url) as connection:
        paused, _ = rewinds.controls(connection, rewind_id)
        rewinds.set_controls(connection, rewind_id, paused=paused, records_per_second=records_per_second)
        _note(connection, person, "throttle", rewind_id, {"records_per_second": records_per_second})
    return paused


def finish(registry_url: str, rewind_id: str, person: str) -> None:
    """End the observation of an active rewind at its next look.

    Raises:
        RefusedError: The rewind is unknown or not active.
    """
    with writing(registry_url) as connection:
        rewinds.read_active(connection, rewind_id)
        rewinds.fix(connection, rewind_id, FINISH, True)
        _note(connection, person, "finish", rewind_id)


def _note(
    connection: Connection, person: str, action: str, rewind_id: str, said: Mapping[str, Any] | None = None
) -> None:
    pipeline = rewinds.read(connection, rewind_id).pipeline
    audit.note(connection, audit.Act(person, action, pipeline, rewind_id, said))
