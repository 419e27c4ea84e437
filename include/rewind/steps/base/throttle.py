"""Pause and slow down a backfill from outside, while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

POLL_SECONDS = 1.0

log = logging.getLogger(__name__)


class Throttle:
    """Waits between chunks as the controls say, which are read anew each second."""

    def __init__(
        self,
        controls: Callable[[], tuple[bool, int | None]],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """Keep the parts.

        Args:
            controls: Gives whether the backfill is paused, and its limit in records per second.
            clock: Seconds that only grow.
            sleep: Waits that many seconds.
        """
        self._controls = controls
        self._clock = clock
        self._sleep = sleep
        self._began = clock()

    def before(self) -> None:
        """Wait while the backfill is paused, then note that a chunk begins."""
        said = False
        while self._controls()[0]:
            if not said:
                log.info("paused: `python -m rewind resume` lets it go on")
            said = True
            self._sleep(POLL_SECONDS)
        self._began = self._clock()

    def after(self, rows: int) -> None:
        """Wait until a chunk of that many records has taken as long as the limit wants."""
        while (limit := self._controls()[1]) is not None:
            left = self._began + rows / limit - self._clock()
            if left <= 0:
                return
            self._sleep(min(left, POLL_SECONDS))
