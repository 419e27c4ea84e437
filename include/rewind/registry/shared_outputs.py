"""The shared outputs of pipelines: in no generation's manifest, and collected with none."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from rewind.registry import schema
from rewind.registry.database import now

_table = schema.shared_outputs


@dataclass(frozen=True)
class SharedOutput:
    """The topic or table that a pipeline's readers may read for ever, whichever job is live.

    Attributes:
        pipeline: The pipeline.
        kind: topic or table (`manifest.TOPIC`, `manifest.TABLE`).
        name: Its exact name.
        resource_id: The id that tells it from another of its name; None until it was made.
    """

    pipeline: str
    kind: str
    name: str
    resource_id: str | None


def name(connection: Connection, pipeline: str, kind: str, resource: str) -> None:
    """Name a pipeline's shared output before it is made; harmless when it is named already."""
    if find(connection, pipeline) is None:
        connection.execute(insert(_table).values(pipeline=pipeline, kind=kind, name=resource, at=now()))


def made(connection: Connection, pipeline: str, resource_id: str) -> None:
    """Record that a named shared output exists now, with its id."""
    connection.execute(update(_table).where(_table.c.pipeline == pipeline).values(resource_id=resource_id))


def find(connection: Connection, pipeline: str) -> SharedOutput | None:
    """Return the shared output of a pipeline, or None when it has none."""
    row = connection.execute(select(_table).where(_table.c.pipeline == pipeline)).one_or_none()
    return None if row is None else SharedOutput(row.pipeline, row.kind, row.name, row.resource_id)


def names(connection: Connection) -> set[str]:
    """Return the names of all shared outputs."""
    return set(connection.execute(select(_table.c.name)).scalars())
