"""The state as the page reads it: one look for all who watch, a moment old at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import TopicReader
from rewind.core.settings import Settings
from rewind.runtime.kafka import reachability
from rewind.views import change_count, status
from rewind.views.status import RECENT_REWINDS, Status

FRESH_SECONDS = 5.0
"""So long a look serves all browsers at least: more of them cost no more reads."""
COSTLY, LONGEST_SECONDS = 100.0, 10.0
"""One of a large installation serves this many times the CPU seconds that it took, a share of 1 %, but no longer."""
OVERVIEW_REWINDS = 1
"""So many ended rewinds of each pipeline the overview shows."""
STILL_SECONDS = 20.0
"""So long it serves at most while the registry does not change: Kafka, processes and the clock move without it."""


@dataclass(frozen=True)
class Seen:
    """A look that was taken.

    Attributes:
        status: What was seen.
        registry: URL of the registry.
        number: How much had been changed in it just before; None when that is not known.
        read_at: When it was read, in seconds of a clock.
        checked_at: When it was last known to be up to date.
        serves: For so many seconds from then it is not checked again.
    """

    status: Status
    registry: str
    number: int | None
    read_at: float
    checked_at: float
    serves: float


class State:
    """The state of an installation."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        broker: Callable[[Settings], TopicReader | None] = reachability.broker,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        """Look at an installation; nothing is read before the first look."""
        self._settings = settings
        self._broker, self._clock, self._spent = broker, clock, spent
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}

    def settings(self) -> Settings:
        """Return the settings of the installation.

        Raises:
            RetryError: The environment names none: that is no fault of what was asked for.
        """
        try:
            return self._settings()
        except RefusedError as unset:
            raise RetryError(str(unset)) from unset

    def look(self, pipeline: str = "") -> Status:
        """Return the state: of one pipeline in full, or of all without what has been collected.

        Raises:
            RetryError: The environment names no installation, or its registry is locked or cannot be reached.
        """
        with self._lock:
            seen = self._checked(self._seen.get(pipeline)) or self._read(pipeline)
            self._seen[pipeline] = seen
        if not seen.status.registry_read:
            raise RetryError("; ".join(seen.status.problems))
        return seen.status

    def forget(self) -> None:
        """Let the next look be a new one: something was changed."""
        with self._lock:
            self._seen.clear()

    def _checked(self, seen: Seen | None) -> Seen | None:
        """Return a look that still serves, else None."""
        now = self._clock()
        if seen is None or now - seen.read_at > STILL_SECONDS:
            return None
        if now - seen.checked_at <= seen.serves:
            return seen
        if seen.number is None or seen.registry != self.settings().registry_url:
            return None
        return replace(seen, checked_at=now) if change_count.number(seen.registry) == seen.number else None

    def _read(self, pipeline: str) -> Seen:
        settings, now, begun = self.settings(), self._clock(), self._spent()
        # Before the look: what changes during it makes the next one new.
        number = change_count.number(settings.registry_url)
        broker, recent = self._broker(settings), RECENT_REWINDS if pipeline else OVERVIEW_REWINDS
        found = status.read(settings, broker, pipeline=pipeline, collected=pipeline != "", recent=recent)
        serves = max(FRESH_SECONDS, min(COSTLY * (self._spent() - begun), LONGEST_SECONDS))
        return Seen(found, settings.registry_url, number, now, now, serves)
