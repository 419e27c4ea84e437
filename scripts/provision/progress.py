"""What is being done, how far it is, what is left: a line that moves at a terminal, else lines; and a log."""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

EVERY_SECONDS = 10
"""Between two lines of progress where no terminal is."""
SHARES = {"uv": 5, "locks": 10, "packages": 35, "jars for Spark": 5, "jars for Kafka": 30, "archive": 45}
"""What a step takes of the whole, about, by the seconds it takes on two cores."""


class Board:
    """The steps of one set-up, shown on a stream and in a log.

    Steps run beside each other, in threads; one thread calls `draw` again and again.
    """

    def __init__(self, planned: Sequence[str], stream: TextIO, log: Path) -> None:
        self._stream, self._log, self._live = stream, log, stream.isatty()
        self._guard = threading.RLock()
        self._begun = time.monotonic()
        self._plain_at = self._begun
        self._left = list(planned)
        self._shares = dict.fromkeys(planned, 0.0)
        self._doing: dict[str, str] = {}

    @contextlib.contextmanager
    def step(self, name: str, doing: str) -> Iterator[None]:
        """Show a step while it runs, and in the end how long it took."""
        begun = time.monotonic()
        with self._guard:
            self._left = [other for other in self._left if other != name]
            self.show(name, doing, 0)
            self.say(f"{name}: {doing}")
        try:
            yield
        finally:
            with self._guard:
                self._doing.pop(name, None)
        with self._guard:
            self._shares[name] = 1.0
            self.say(f"{name}: done in {time.monotonic() - begun:.0f} s")

    def show(self, name: str, doing: str, share: float) -> None:
        """Tell how far a running step is, from 0 to 1."""
        with self._guard:
            self._doing[name] = doing
            self._shares[name] = min(share, 0.99)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        with self._guard:
            erased = "\r\x1b[K" if self._live else ""
            print(f"{erased}setup: {text}", file=self._stream, flush=True)
            self.log(text)

    def draw(self) -> None:
        """Move the line at a terminal; elsewhere and in the log add one where the last is old."""
        with self._guard:
            line = self._line()
            if self._live:
                width = shutil.get_terminal_size().columns
                print(f"\r\x1b[K{line[: width - 1]}", end="", file=self._stream, flush=True)
            if time.monotonic() - self._plain_at < EVERY_SECONDS:
                return
            self._plain_at = time.monotonic()
            self.log(line) if self._live else self.say(line)

    def close(self) -> None:
        """Leave no half line behind."""
        if self._live:
            print("\r\x1b[K", end="", file=self._stream, flush=True)

    def _line(self) -> str:
        """Return the state in one line: percent, seconds, what runs, what is left."""
        total = sum(SHARES[name] for name in self._shares) or 1
        done = sum(SHARES[name] * share for name, share in self._shares.items())
        running = [f"{name}: {doing}" for name, doing in self._doing.items()]
        left = [f"left: {', '.join(self._left)}"] if self._left else []
        return " | ".join([f"{100 * done / total:.0f} % {time.monotonic() - self._begun:.0f} s", *running, *left])

    def log(self, text: str) -> None:
        """Add a line to the log alone."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        at = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._log.open("a") as log:
            log.write(f"{at} {text}\n")
