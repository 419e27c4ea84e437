"""What a plan of the tests is asked for, and when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rewind.core.planning.plan import Request
from tests.support.fakes import PIPELINE

NOW = datetime(2025, 9, 10, 12, tzinfo=UTC)


def request(start: str = "earliest", end: str = "", **changes: Any) -> Request:
    return Request(PIPELINE.name, start, end, **changes)
