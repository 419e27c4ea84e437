"""The planner's view of the registry."""

from __future__ import annotations

from rewind.core.model import Batch, Generation
from rewind.core.offsets import Vector, reached
from rewind.registry import generations, progress, rewinds
from rewind.registry.database import reading


class Lifecycle:
    """What a planner reads of the registry, one transaction a question."""

    def __init__(self, url: str) -> None:
        """Keep the registry's URL."""
        self._url = url

    def live(self, pipeline: str) -> tuple[Generation, int] | None:
        """Return the live generation and the epoch, or None before the first deploy."""
        with reading(self._url) as connection:
            return generations.live(connection, pipeline)

    def position(self, job_id: str) -> Vector:
        """Return the next offset a stream will read, from its last committed batch."""
        with reading(self._url) as connection:
            return progress.position(connection, job_id, generations.read(connection, job_id).handoff)

    def newest_batch(self, job_id: str) -> Batch | None:
        """Return the last committed batch of a stream, or None before the first."""
        with reading(self._url) as connection:
            return progress.newest(connection, job_id)

    def batch_reaching(self, job_id: str, position: Vector) -> Batch | None:
        """Return the first batch of a stream that ends at or past a position in all its partitions, or None."""
        with reading(self._url) as connection:
            return progress.first_where(connection, job_id, lambda batch: reached(batch.end, position))

    def last_batch_closing(self, job_id: str, watermark: int) -> Batch | None:
        """Return the newest batch of a stream whose closing watermark is at or below an instant (ms), or None."""
        with reading(self._url) as connection:
            return progress.last_closing(connection, job_id, watermark)

    def first_batch_closing_after(self, job_id: str, watermark: int) -> Batch | None:
        """Return the first batch of a stream whose closing watermark is above an instant (ms), or None."""
        with reading(self._url) as connection:
            return progress.first_closing_after(connection, job_id, watermark)

    def active_rewind(self, pipeline: str) -> str | None:
        """Return the id of the active rewind, if any."""
        with reading(self._url) as connection:
            found = rewinds.active_of(connection, pipeline)
            return None if found is None else found.id

    def next_number(self, pipeline: str, kind: str) -> int:
        """Return the number that the next generation (`g`) or repair (`r`) will get."""
        with reading(self._url) as connection:
            return generations.next_number(connection, pipeline, kind)
