"""The planner's view of the registry."""

from __future__ import annotations

from rewind.control import generations, progress, rewinds
from rewind.control.database import transaction
from rewind.core.offsets import Vector
from rewind.core.world import Generation


class Lifecycle:
    """What a planner reads of the registry, one transaction a question."""

    def __init__(self, url: str) -> None:
        """Keep the registry's URL."""
        self._url = url

    def live(self, pipeline: str) -> tuple[Generation, int] | None:
        """Return the live generation and the epoch, or None before the first deploy."""
        with transaction(self._url) as connection:
            return generations.live(connection, pipeline)

    def position(self, job_id: str) -> Vector:
        """Return the next offset a stream will read, from its last committed batch."""
        with transaction(self._url) as connection:
            return progress.position(connection, job_id, generations.read(connection, job_id).handoff)

    def active_rewind(self, pipeline: str) -> str | None:
        """Return the id of the active rewind, if any."""
        with transaction(self._url) as connection:
            found = rewinds.active_of(connection, pipeline)
            return None if found is None else found.id

    def next_number(self, pipeline: str, kind: str) -> int:
        """Return the number that the next generation (`g`) or repair (`r`) will get."""
        with transaction(self._url) as connection:
            return generations.next_number(connection, pipeline, kind)
