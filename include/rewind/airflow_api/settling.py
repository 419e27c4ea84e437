"""When a person's answer reaches the task that asked."""

from __future__ import annotations

from datetime import datetime, timedelta

SETTLE = timedelta(seconds=3)
"""An answer that comes before Airflow's executor has reported the asking task parked is lost, and the task is taken for
failed."""


def settled(asked_at: str | None, now: datetime) -> bool:
    """Return whether a question that was asked at an instant (ISO text, None when unknown) can be answered now."""
    return asked_at is not None and now - datetime.fromisoformat(asked_at) > SETTLE
