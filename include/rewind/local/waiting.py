"""Wait for what others do, for as long as it moves (ADR 0030)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from rewind.core.errors import RetryError, RewindError
from rewind.local import process_table, watched
from rewind.local.process_table import Entry
from rewind.local.progress import STILL_SECONDS, Look, Progress, Standstills
from rewind.local.voice import Voice
from rewind.local.watched import Watched

POLL_SECONDS = 0.5
PROCESS_SECONDS = 3.0
"""Processes are looked at so often: the whole table of them costs more than most looks."""

T = TypeVar("T")


class StuckError(RewindError):
    """Nothing has moved of what was waited for."""


class Waiting:
    """Waits of one command: they share a voice, and what is known of the processes that all of it rests on."""

    def __init__(
        self,
        voice: Voice,
        rests_on: Callable[[], Sequence[Watched]] = tuple,
        *,
        still: float = STILL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait for nothing yet.

        Args:
            voice: Says what is waited for.
            rests_on: Returns the processes without which nothing can be expected, whatever is waited for.
            still: After so many seconds without a movement a wait fails.
            clock: Tells the time in seconds.
            sleep: Pauses for so many seconds.
        """
        self._voice, self._rests_on, self._still = voice, rests_on, still
        self._clock, self._sleep = clock, sleep
        self._standstills = Standstills(still)
        self._checked = float("-inf")

    def until(
        self,
        what: str,
        look: Callable[[], Look[T]],
        works: Callable[[], Iterable[Watched]] = tuple,
        pause: float = POLL_SECONDS,
    ) -> T:
        """Look again and again until there is something to see, and return it.

        Args:
            what: What should happen, as it goes on from "waiting for".
            look: Looks once; a `RetryError` is one look at which nobody answered.
            works: Returns the processes that work on it: their CPU time counts as a movement.
            pause: Seconds between two looks.

        Raises:
            StuckError: Nothing has moved for too long, or a process that everything rests on cannot work for as long.
        """
        progress, seen = Progress(self._clock(), self._still), Look[T]()
        while True:
            seen = _looked(look, seen)
            if seen.found:
                return seen.found
            at = self._clock()
            progress.note(seen.marks, at)
            self._voice.waiting(what, seen.far, progress.waited(at))
            if at - self._checked >= PROCESS_SECONDS or progress.stuck(at):
                self._check(what, seen.far, progress, list(works()))
            self._sleep(pause)

    def _check(self, what: str, far: str, progress: Progress, workers: list[Watched]) -> None:
        table, at = process_table.entries(), self._clock()
        self._checked = at
        progress.note_cpu(watched.cpu(workers, table), at)
        unable = self._unable(table, at)
        if unable:
            raise StuckError(f"{unable}. Waited for {what}: {far}")
        if progress.stuck(at):
            still = f"nothing has moved for {progress.still(at):.0f} s ({far})"
            raise StuckError(f"{self._report(workers, table)}. Waited for {what}: {still}")

    def check(self) -> None:
        """Check that no process that everything rests on is unable to work.

        Raises:
            StuckError: One is.
        """
        table = process_table.entries()
        unable = [one for one in self._rests_on() if watched.problem(one, table)]
        if unable:
            raise StuckError(watched.report(unable[0], table))

    def _unable(self, table: dict[int, Entry], at: float) -> str:
        rests_on = {one.name: one for one in self._rests_on()}
        unable = [name for name, one in rests_on.items() if watched.problem(one, table)]
        lasting = self._standstills.note(unable, at)
        return watched.report(rests_on[lasting[0]], table) if lasting else ""

    def _report(self, workers: Iterable[Watched], table: dict[int, Entry]) -> str:
        known = [*self._rests_on(), *workers]
        unable = [one for one in known if watched.problem(one, table)]
        reports = [text for one in unable or workers if (text := watched.report(one, table))]
        return "; ".join(reports) or "no process works on it: look at make logs NAME=scheduler"


def _looked(look: Callable[[], Look[T]], before: Look[T]) -> Look[T]:
    try:
        return look()
    except RetryError as away:
        # Whoever answers now and then is no nearer to what is waited for.
        return replace(before, far=f"no answer: {away}")
