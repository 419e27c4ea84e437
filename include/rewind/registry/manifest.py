"""What each generation owns, named before it is made, and what has been deleted of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from rewind.registry import schema
from rewind.registry.database import now

TOPIC, GROUP, FOLDER, TABLE = "topic", "group", "folder", "table"
NAMED, MADE, WITHDRAWN, GOING, DELETED = "named", "made", "withdrawn", "going", "deleted"


@dataclass(frozen=True)
class Entry:
    """One thing a generation owns.

    Attributes:
        kind: topic, table, group or folder.
        name: Its exact name.
        resource_id: What tells it from another of the same name; the id of a topic or table.
        state: named, made, withdrawn, going (it was there, and its deletion has begun) or deleted.
    """

    kind: str
    name: str
    resource_id: str | None
    state: str


@dataclass(frozen=True)
class Deletion:
    """One line of the deletions ledger: `deleted`, `absent` or `refused`, with the detail."""

    job_id: str
    kind: str
    name: str
    resource_id: str | None
    result: str
    detail: str
    at: datetime


def name(connection: Connection, job_id: str, kind: str, resource: str) -> None:
    """Name a thing before it is made; harmless when it is named already."""
    table = schema.manifest
    if connection.execute(select(table.c.state).where(_entry(job_id, kind, resource))).first() is None:
        connection.execute(insert(table).values(job_id=job_id, kind=kind, name=resource, state=NAMED))


def made(connection: Connection, job_id: str, kind: str, resource: str, resource_id: str | None) -> bool:
    """Record that a named thing exists now, with its id; return False when it has been withdrawn meanwhile."""
    values = {"state": MADE, "resource_id": resource_id}
    wanted = _entry(job_id, kind, resource) & schema.manifest.c.state.in_((NAMED, MADE))
    return connection.execute(update(schema.manifest).where(wanted).values(**values)).rowcount == 1


def set_state(connection: Connection, job_id: str, kind: str, resource: str, state: str) -> None:
    """Record what became of a thing."""
    connection.execute(update(schema.manifest).where(_entry(job_id, kind, resource)).values(state=state))


def withdraw(connection: Connection, job_id: str) -> list[Entry]:
    """Mark all that a generation owns as about to be deleted, and return it, as `read` does."""
    mine = (schema.manifest.c.job_id == job_id) & schema.manifest.c.state.in_((NAMED, MADE))
    connection.execute(update(schema.manifest).where(mine).values(state=WITHDRAWN))
    return read(connection, job_id)


def any_made(connection: Connection, kind: str) -> bool:
    """Return whether any generation owns a thing of a kind that was made and is not deleted yet."""
    made = (schema.manifest.c.kind == kind) & schema.manifest.c.state.not_in((NAMED, DELETED))
    query = select(schema.manifest.c.name).where(made)
    return connection.execute(query.limit(1)).first() is not None


def listed(connection: Connection) -> set[str]:
    """Return the names of all things that any generation owns and that are not deleted."""
    query = select(schema.manifest.c.name).where(schema.manifest.c.state != DELETED)
    return set(connection.execute(query).scalars())


def read(connection: Connection, job_id: str) -> list[Entry]:
    """Return what a generation owns, its outputs last, so that an interrupted collection leaves its names findable."""
    return read_all(connection, [job_id]).get(job_id, [])


def read_all(connection: Connection, job_ids: Any) -> dict[str, list[Entry]]:
    """Return the same of generations, given as a list or as a query of ids, by generation."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for row in connection.execute(select(schema.manifest).where(schema.manifest.c.job_id.in_(job_ids))):
        found[row.job_id].append(Entry(row.kind, row.name, row.resource_id, row.state))
    for entries in found.values():
        entries.sort(key=lambda entry: (entry.kind in (TOPIC, TABLE), entry.kind, entry.name))
    return found


def record(connection: Connection, job_id: str, entry: Entry, result: str, detail: str) -> None:
    """Add a line to the deletions ledger."""
    connection.execute(
        insert(schema.deletions).values(
            job_id=job_id,
            kind=entry.kind,
            name=entry.name,
            resource_id=entry.resource_id,
            result=result,
            detail=detail,
            at=now(),
        )
    )


def ledger(connection: Connection, job_id: str) -> list[Deletion]:
    """Return the deletions of a generation, oldest first."""
    table = schema.deletions
    rows = connection.execute(select(table).where(table.c.job_id == job_id).order_by(table.c.id))
    return [Deletion(r.job_id, r.kind, r.name, r.resource_id, r.result, r.detail, r.at) for r in rows]


def _entry(job_id: str, kind: str, resource: str) -> Any:
    table = schema.manifest
    return (table.c.job_id == job_id) & (table.c.kind == kind) & (table.c.name == resource)
