"""How far the log of each table was looked at, and what others did to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select

from rewind.core.table_changes import Change
from rewind.registry import schema
from rewind.registry.database import now

_sights, _changes = schema.table_sights, schema.table_changes


@dataclass(frozen=True)
class Sight:
    """The newest commit of a table that was looked at.

    Attributes:
        version: Its version.
        mark: Hash of its file: a table made anew, or put back from a copy, has another there.
        delta_id: Delta's id of the table.
        columns: Names of its columns.
    """

    version: int
    mark: str
    delta_id: str = ""
    columns: tuple[str, ...] = ()


def read(connection: Connection, name: str, table_id: str) -> Sight | None:
    """Return how far a table was looked at, None when it never was."""
    row = connection.execute(select(_sights).where(_of(_sights, name, table_id))).one_or_none()
    return None if row is None else Sight(row.version, row.mark, row.delta_id, tuple(row.columns))


def changes(connection: Connection, name: str, table_id: str) -> list[Change]:
    """Return what others did to a table, in order."""
    rows = connection.execute(select(_changes).where(_of(_changes, name, table_id)).order_by(_changes.c.version))
    return [Change(row.version, row.kind, row.operation, row.by, row.made_at, row.restored, row.rows) for row in rows]


def record(connection: Connection, name: str, table_id: str, sight: Sight, found: Iterable[Change]) -> None:
    """Record how far a table was looked at, and what was found; what another look has recorded already stays."""
    known = {change.version for change in changes(connection, name, table_id)}
    for change in found:
        if change.version not in known:
            values = {"version": change.version, "kind": change.kind, "operation": change.operation, "by": change.by}
            values |= {"made_at": change.at, "restored": change.restored, "rows": change.rows}
            connection.execute(insert(_changes).values(name=name, table_id=table_id, **values))
    last = read(connection, name, table_id)
    if last is not None and last.version >= sight.version:
        return
    connection.execute(delete(_sights).where(_of(_sights, name, table_id)))
    values = {"version": sight.version, "mark": sight.mark, "delta_id": sight.delta_id, "columns": list(sight.columns)}
    connection.execute(insert(_sights).values(name=name, table_id=table_id, at=now(), **values))


def _of(table: Table, name: str, table_id: str) -> ColumnElement[bool]:
    return (table.c.name == name) & (table.c.table_id == table_id)
