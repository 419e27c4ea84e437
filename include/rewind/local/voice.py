"""Says what is waited for and how far it is: in place at a terminal, else as a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

LINE_SECONDS = 5.0
"""Who reads a log hears something every ten seconds at the latest: a look and the pause after it come on top."""


class Voice:
    """What a long command says while it waits."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        """Keep where to speak; the first line without a terminal comes after some seconds."""
        self.console = console
        self._clock, self._printed = clock, clock()
        self._status: Status | None = None

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show at a terminal what is done meanwhile; what is waited for stands behind it."""
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(what) as self._status:
            yield
        self._status = None

    def waiting(self, what: str, far: str, seconds: float) -> None:
        """Say what is waited for, if it is time to say something.

        Args:
            what: What should happen, as it goes on from "waiting for".
            far: How far it is; empty when that is not known.
            seconds: For how long it has been waited for.
        """
        self.show(f"waiting for {what}: {far}{', ' if far else ''}{seconds:.0f} s")

    def show(self, text: str) -> None:
        """Show a text in place, or print it if nothing was said for some seconds."""
        if self.console.is_terminal:
            if self._status is not None:
                self._status.update(text)
        elif self._clock() - self._printed >= LINE_SECONDS:
            self._printed = self._clock()
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)


SILENT = Voice(Console(quiet=True))
