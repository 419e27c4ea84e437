"""Says what is waited for and how far it is: in place at a terminal, else as a line every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

LINE_SECONDS = 5.0
"""Between two lines of who looks again and again."""
SILENT_SECONDS = 7.0
"""After so long a line comes even where nobody looks: a log has one every ten seconds at the latest."""
BEAT_SECONDS = 0.5


class Voice:
    """What a long command says while it waits."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        """Keep where to speak; the first line without a terminal comes after some seconds."""
        self.console = console
        self._clock, self._printed = clock, clock()
        self._status: Status | None = None
        self._text, self._shown = "", clock()
        self._beats = False

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show what is done meanwhile: at a terminal in place, else as a line when nothing else was said."""
        if self.console.is_terminal:
            with self.console.status(what) as self._status:
                yield
            self._status = None
            return
        before = self._text
        self._text, self._shown = what, self._clock()
        try:
            with self.beating():
                yield
        finally:
            self._text, self._shown = before, self._clock()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Say something from time to time even while a single look takes long; not at a terminal."""
        if self._beats or self.console.is_terminal:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        self._beats = True
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._beats = False

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            self.beat()

    def beat(self) -> None:
        """Say again what was said last, and how long ago that was, unless something was said a moment ago."""
        at = self._clock()
        if self._text and at - self._printed >= SILENT_SECONDS:
            self._print(f"{self._text} ({at - self._shown:.0f} s ago)", at)

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
            return
        at = self._clock()
        self._text, self._shown = text, at
        if at - self._printed >= LINE_SECONDS:
            self._print(text, at)

    def _print(self, text: str, at: float) -> None:
        self._printed = at
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


SILENT = Voice(Console(quiet=True))
