"""Attempts at steps that are no submits: a submit's main records its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from rewind.registry import rewinds


def begin_once(connection: Connection, rewind_id: str, step: str) -> None:
    """Record that a step begins, unless its newest attempt is still running."""
    newest = rewinds.last_attempt(connection, rewind_id, step)
    if newest == 0 or rewinds.last_attempt(connection, rewind_id, step, "running") != newest:
        rewinds.begin_step(connection, rewind_id, step)


def end(connection: Connection, rewind_id: str, step: str, state: str, evidence: Mapping[str, Any]) -> None:
    """Record how the newest attempt at a step ended."""
    attempt = rewinds.last_attempt(connection, rewind_id, step)
    rewinds.end_step(connection, rewind_id, step, attempt, state, dict(evidence))
