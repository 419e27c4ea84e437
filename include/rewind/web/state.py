"""The state as the page reads it: one look for all who watch, a moment old at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rewind.control import listening, status
from rewind.control.status import Status
from rewind.core.errors import RefusedError, RetryError
from rewind.core.settings import Settings
from rewind.core.world import BrokerReader

FRESH_SECONDS = 4.0
"""So long a look serves all browsers: more of them cost no more reads."""


class State:
    """The state of an installation."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        broker: Callable[[Settings], BrokerReader | None] = listening.broker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at an installation; nothing is read before the first look."""
        self._settings = settings
        self._broker, self._clock = broker, clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, Status]] = {}

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
            at, found = self._seen.get(pipeline, (0.0, None))
            if found is None or self._clock() - at > FRESH_SECONDS:
                found = self._read(pipeline)
                self._seen[pipeline] = (self._clock(), found)
        if not found.registry_read:
            raise RetryError("; ".join(found.problems))
        return found

    def forget(self) -> None:
        """Let the next look be a new one: something was changed."""
        with self._lock:
            self._seen.clear()

    def _read(self, pipeline: str) -> Status:
        settings = self.settings()
        return status.read(settings, self._broker(settings), pipeline=pipeline, collected=pipeline != "")
