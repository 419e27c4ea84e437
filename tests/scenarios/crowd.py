"""Many pipelines that write to one registry while one of them lists a file system that is slow (case F01)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any

import pytest

from rewind.adapters import files, mirror
from rewind.control import progress
from rewind.control.database import now, transaction
from rewind.control.guard import Guard
from rewind.core import chunks
from rewind.core.offsets import Ranges
from rewind.core.settings import Settings
from rewind.core.world import Batch
from rewind.steps import backfill
from rewind.steps.backfill import Work
from rewind.steps.history import History
from tests.support import fakes

MOST_MILLISECONDS = 1_000
"""How long a writer may wait for another pipeline."""
STUCK_SECONDS = 60


@dataclass(frozen=True)
class Waits:
    """What the writers did while the slow one listed.

    Attributes:
        writes: How many they made.
        longest: Seconds that one of them waited at most before it could write.
        files: Files that were listed meanwhile.
    """

    writes: int
    longest: float
    files: int


class SlowFiles:
    """A file system that hands out so many names at a time, and only when it is let."""

    def __init__(self, at_a_time: int) -> None:
        """Nothing is listed yet."""
        self._at_a_time = at_a_time
        self._reached, self._let = Semaphore(0), Semaphore(0)
        self._over = False
        self.listed = 0

    def through(self, names: Iterable[str]) -> Iterator[str]:
        """Give names as slowly as this file system does."""
        for number, name in enumerate(names):
            if number % self._at_a_time == 0 and not self._over:
                self._reached.release()
                assert self._let.acquire(timeout=STUCK_SECONDS), "nobody let the listing go on"
            self.listed += 1
            yield name

    def stands(self) -> bool:
        """Wait until somebody who lists stands still; return whether, not that all have ended."""
        assert self._reached.acquire(timeout=STUCK_SECONDS), "nothing was listed"
        return not self._over

    def let_on(self) -> None:
        """Let the listing go on, up to where it stands next."""
        self._let.release()

    def end(self) -> None:
        """Stand still nowhere any more."""
        self._over = True
        self._reached.release()
        self._let.release()


def beside_writers(url: str, owners: Sequence[str], act: Callable[[], Any], slow: SlowFiles, at_once: int = 1) -> Waits:
    """Let pipelines write, each once whenever the listing of another stands still, and return how they waited.

    Args:
        url: URL of the registry.
        owners: The pipelines' jobs.
        act: What lists, in a thread of its own.
        slow: The file system that it lists.
        at_once: How many write at the same moment. Several that do nothing else let one of them wait too: SQLite asks
            again for a lock now and then, and has no queue.

    Raises:
        RetryError: One waited longer than `MOST_MILLISECONDS`.
    """
    written: defaultdict[str, int] = defaultdict(int)

    def write(owner: str) -> float:
        begun = time.monotonic()
        with transaction(url, MOST_MILLISECONDS) as connection:
            waited = time.monotonic() - begun
            number = written[owner]
            progress.record(connection, owner, 1, Batch(number, {0: number}, {0: number + 1}, 1, now()))
        written[owner] += 1
        return waited

    def listing() -> None:
        try:
            act()
        finally:
            slow.end()

    longest = 0.0
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(at_once) as many:
        ends = one.submit(listing)
        try:
            while slow.stands():
                longest = max(longest, *many.map(write, owners))
                slow.let_on()
        finally:
            slow.end()
        ends.result()
    return Waits(sum(written.values()), longest, slow.listed)


def backfill_beside_writers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, pipelines: int, count: int, at_a_time: int
) -> Waits:
    """Cut a wave of a mirror of so many files on a slow disk while other pipelines write; no Spark is needed.

    Args:
        settings: An installation with a registry.
        monkeypatch: Puts the slow file system in the place of Spark's.
        pipelines: How many others write.
        count: Files of the mirror.
        at_a_time: How many of them are listed between two writes of each pipeline.
    """
    slow = SlowFiles(at_a_time)
    folder = Path(mirror.table_path(settings, fakes.TOPIC))
    uris = [f"file:{path}" for path in _files(folder, count)]
    monkeypatch.setattr(mirror, "read", lambda *_: SimpleNamespace(inputFiles=lambda: uris))
    monkeypatch.setattr(files, "names", lambda _, place: list(slow.through(_names(place))))
    made = Work("rw-1", fakes.plan(), fakes.PIPELINE, fakes.generation(number=2))
    history = History(None, settings, made.pipeline, made.generation.topic_id)  # type: ignore[arg-type]

    def cut(ranges: Ranges, _: int) -> list[Ranges]:
        return chunks.cut(ranges, made.pipeline.chunk_records)

    def act() -> None:
        with Guard(settings, made.plan.job_id) as guard:
            ranges = backfill.between(made.plan.start, made.plan.end)
            backfill.cut_wave(settings, made, guard, backfill._checked(history, cut), 0, 1, ranges)

    owners = [f"pipeline_{number}-g1" for number in range(pipelines)]
    return beside_writers(settings.registry_url, owners, act, slow)


def _names(place: str) -> Iterator[str]:
    return (path.name for path in Path(place.removeprefix("file:")).iterdir())


def _files(folder: Path, count: int) -> list[Path]:
    folder.mkdir(parents=True)
    made = [folder / f"part-{number:05d}.parquet" for number in range(count)]
    for path in made:
        path.touch()
    return made
