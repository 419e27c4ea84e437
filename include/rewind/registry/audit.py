"""Who did what: one line for each act of a person, never changed and never deleted."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from rewind.registry import generations, schema
from rewind.registry.database import now

_table = schema.audit


@dataclass(frozen=True)
class Act:
    """What a person does.

    Attributes:
        person: Who, by the name that Airflow has of them, or the user of a command's host.
        action: What, as the DAG, step or command is called.
        pipeline: Of which pipeline; empty for all.
        subject: The rewind, job or topic that it is about; empty for none.
        said: What was asked for, or the reason that was given.
    """

    person: str
    action: str
    pipeline: str = ""
    subject: str = ""
    said: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Line:
    """An act as it was noted, with its number and when it was, UTC."""

    number: int
    at: datetime
    person: str
    action: str
    pipeline: str
    subject: str
    said: Mapping[str, Any]
    run: str


def note(connection: Connection, act: Act, run: str = "") -> None:
    """Note an act; one of a run that is noted already is not noted again.

    Args:
        connection: To the registry, in the transaction of the act itself where that is one.
        act: The act.
        run: The run of a DAG that carries it out, as `<DAG>/<run>`; empty for an act that is done at once.
    """
    if run:
        known = select(_table.c.number).where((_table.c.run == run) & (_table.c.action == act.action))
        if connection.execute(known).first() is not None:
            return
    values = {"person": act.person, "action": act.action, "pipeline": act.pipeline, "subject": act.subject}
    said = json.dumps(act.said or {}, sort_keys=True)
    connection.execute(insert(_table).values(**values, at=now(), said=said, run=run or None))


def of_owner(connection: Connection, owner: str) -> str:
    """Return the pipeline of a job; empty for what belongs to none alone, as a mirror."""
    job = generations.find(connection, owner)
    return "" if job is None else job.pipeline


def read(connection: Connection, most: int | None, pipelines: Collection[str] | None = None) -> list[Line]:
    """Return the newest lines, or with None all, of some pipelines or of all, newest first.

    What belongs to no pipeline is among those of all alone.
    """
    query = select(_table) if pipelines is None else select(_table).where(_table.c.pipeline.in_(pipelines))
    rows = connection.execute(query.order_by(_table.c.number.desc()).limit(most))
    return [
        Line(r.number, r.at, r.person, r.action, r.pipeline, r.subject, json.loads(r.said), r.run or "") for r in rows
    ]
