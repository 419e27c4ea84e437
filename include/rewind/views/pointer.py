"""The live pointer as readers see it: which job's output to read now."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from rewind.core import times
from rewind.core.errors import RefusedError
from rewind.core.planning import shared_output
from rewind.registry import schema
from rewind.registry.snapshot import snapshot


@dataclass(frozen=True)
class Resolved:
    """Where a pipeline's answers are now.

    Attributes:
        pipeline: The pipeline.
        job_id: Its live job.
        epoch: Grows by one each time the pointer moves.
        output_topic: The topic or table to read; of a pipeline with a shared output that one, whichever job is live.
        dead_letter_topic: Where rejected records go.
        topic_id: Id of the source topic, with which `rewind-source` headers begin.
        moved_at: When the pointer moved last, UTC.
    """

    pipeline: str
    job_id: str
    epoch: int
    output_topic: str
    dead_letter_topic: str
    topic_id: str
    moved_at: datetime

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON takes it."""
        return {**self.__dict__, "moved_at": times.format_instant(self.moved_at)}


def resolve(pipeline: str, registry_url: str | None = None) -> Resolved:
    """Return where a pipeline's answers are now.

    Args:
        pipeline: The pipeline.
        registry_url: SQLAlchemy URL of the registry; by default that of `REWIND_REGISTRY_URL`, else the one in
            `REWIND_HOME`.

    Raises:
        RefusedError: The pipeline has no live job, or no registry is named or there.
        RetryError: The registry is locked, or cannot be reached.
    """
    generations, pointers = schema.generations, schema.pointers
    query = (
        select(
            pointers,
            generations.c.frozen,
            generations.c.output_topic,
            generations.c.dead_letter_topic,
            generations.c.topic_id,
        )
        .join(generations, generations.c.job_id == pointers.c.job_id)
        .where(pointers.c.pipeline == pipeline)
    )
    with snapshot(registry_url or url_of(os.environ)) as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        raise RefusedError("pipeline", f"{pipeline!r} has no live job", f"Deploy it with the DAG deploy_{pipeline}")
    found = row._asdict()
    found["output_topic"] = shared_output.read_from(found.pop("frozen")["config"], row.output_topic)
    return Resolved(**{**found, "moved_at": row.moved_at.replace(tzinfo=UTC)})


def url_of(environment: Mapping[str, str]) -> str:
    """Return the registry's URL as the environment gives it.

    Raises:
        RefusedError: Neither `REWIND_REGISTRY_URL` nor `REWIND_HOME` is set.
    """
    url, home = environment.get("REWIND_REGISTRY_URL"), environment.get("REWIND_HOME")
    if not url and not home:
        raise RefusedError("REWIND_REGISTRY_URL", "is not set", "Start the stack with `make up`, or export it")
    return url or f"sqlite:///{home}/registry.db"
