"""The state as the page reads it: one look for all who watch, a moment old at most."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rewind.control import listening, status
from rewind.control.status import Status
from rewind.core.errors import RetryError
from rewind.core.settings import Settings
from rewind.core.world import BrokerReader

FRESH_SECONDS = 2.0
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
        self.settings = settings
        self._broker, self._clock = broker, clock
        self._lock = threading.Lock()
        self._seen: Status | None = None
        self._seen_at = 0.0

    def look(self) -> Status:
        """Return the state.

        Raises:
            RefusedError: The environment names no installation.
            RetryError: The registry is locked or cannot be reached.
        """
        with self._lock:
            if self._seen is None or self._clock() - self._seen_at > FRESH_SECONDS:
                settings = self.settings()
                self._seen = status.read(settings, self._broker(settings))
                self._seen_at = self._clock()
            found = self._seen
        if not found.registry_read:
            raise RetryError("; ".join(found.problems))
        return found

    def forget(self) -> None:
        """Let the next look be a new one: something was changed."""
        with self._lock:
            self._seen = None
