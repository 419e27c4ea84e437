"""Generations, plans and races, as the suites of the registry record them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection, delete, insert

from rewind.core import lifecycle
from rewind.core.errors import RewindError
from rewind.core.model import Generation
from rewind.core.planning.plan import Plan, Request
from rewind.registry import generations, schema
from rewind.registry.database import writing
from tests.support import fakes

NAME = fakes.PIPELINE.name
G1, G2, G3 = (f"{NAME}-g{number}" for number in (1, 2, 3))


def create(
    connection: Connection,
    number: int = 1,
    state: str = lifecycle.CANDIDATE,
    rewind_id: str | None = None,
    **changes: Any,
) -> Generation:
    """Record a generation of the usual pipeline."""
    return generations.create(connection, fakes.generation(number=number, state=state, **changes), rewind_id)


def deployed(connection: Connection) -> None:
    """Record a live generation and a candidate."""
    create(connection, 1)
    generations.set_first(connection, G1)
    create(connection, 2)


def a_plan(number: int = 2, **changes: Any) -> Plan:
    """Return the plan of a generation."""
    asked = {"request": Request(NAME, reason="a bug"), "job_id": f"{NAME}-g{number}", "mirror_version": 7}
    return fakes.plan(**asked | changes)


def clear(url: str) -> None:
    """Delete all that a registry holds, as if it had just been made."""
    with writing(url) as connection:
        for table in reversed(schema.metadata.sorted_tables):
            connection.execute(delete(table))
        connection.execute(insert(schema.protocol).values(number=schema.PROTOCOL))
        connection.execute(insert(schema.changes).values(number=0))


def raced(act: Callable[[int], Any], count: int) -> list[Any]:
    """Run `act(n)` in threads that begin together; return what each gave, errors by their class."""
    gate = threading.Barrier(count)

    def run(number: int) -> Any:
        gate.wait()
        try:
            return act(number)
        except RewindError as error:
            return type(error).__name__

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
