"""Many pipelines that write to one registry while one of them lists a file system that is slow (case F01)."""

from __future__ import annotations

import threading
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
from rewind.core.model import Batch
from rewind.core.offsets import Ranges
from rewind.core.planning import chunks
from rewind.core.settings import Settings
from rewind.registry import progress
from rewind.registry.database import now, writing
from rewind.runtime.drivers.guard import Guard
from rewind.steps.feed.history import History
from rewind.steps.lifecycle import backfill
from rewind.steps.lifecycle.backfill import Work
from tests.scenarios.crashes import Life
from tests.support import fakes, preload
from tests.support.workshop import Workshop

MOST_MILLISECONDS = 1_000
"""How long a writer may wait for another pipeline."""
STUCK_SECONDS = 60
LIFE_SECONDS = 1_800
SLOW_DISK = Path(__file__).with_name("slow_disk.c")


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
        waited = _write(url, owner, written[owner])
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


def life_beside_writers(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, pipelines: int, count: int, microseconds: int
) -> tuple[Waits, list[int]]:
    """Plan, backfill and cut over by real submits, on a mirror of so many files on a slow disk, while others write.

    Args:
        shop: A pipeline with two source partitions, nothing of it deployed.
        monkeypatch: Sets what the drivers inherit.
        pipelines: How many others write, each once a second.
        count: Files of the mirror, one a record.
        microseconds: How long each look at one of them takes.

    Returns:
        How the writers waited, and how often each process was made to wait for the disk.
    """
    settings = shop.settings
    (settings.home / "conf").mkdir(parents=True)
    (settings.home / "conf" / "spark-defaults.conf").write_text("spark.sql.files.maxRecordsPerFile 1\n")
    life = Life(shop, ())
    with monkeypatch.context() as small:
        small.setenv("SPARK_CONF_DIR", str(settings.home / "conf"))
        life.begin(count)
    folder = Path(mirror.table_path(settings, shop.topic).removeprefix("file:"))
    files = sum(1 for _ in folder.rglob("*.parquet"))
    counts = settings.home / "waited"
    monkeypatch.setenv("LD_PRELOAD", str(preload.compiled(SLOW_DISK, settings.home)))
    monkeypatch.setenv("REWIND_DRIVER_ENVIRONMENT", "LD_PRELOAD, SLOW_DISK_*")
    monkeypatch.setenv("SLOW_DISK_FOLDER", str(folder))
    monkeypatch.setenv("SLOW_DISK_MICROSECONDS", str(microseconds))
    monkeypatch.setenv("SLOW_DISK_COUNTS", str(counts))
    # Each pass over the history opens each file.
    shop.patience = LIFE_SECONDS
    over, waits = threading.Event(), list[float]()

    def writes(owner: str) -> None:
        number = 0
        while not over.wait(1):
            waits.append(_write(settings.registry_url, owner, number))
            number += 1

    with ThreadPoolExecutor(pipelines) as many:
        written = [many.submit(writes, f"pipeline_{number}-g1") for number in range(pipelines)]
        try:
            life.rewind()
        finally:
            over.set()
        for one in written:
            one.result()
    return Waits(len(waits), max(waits), files), [int(line) for line in counts.read_text().split()]


def _write(url: str, owner: str, number: int) -> float:
    """Record a batch, and return how many seconds that waited for the registry."""
    begun = time.monotonic()
    with writing(url, MOST_MILLISECONDS) as connection:
        waited = time.monotonic() - begun
        progress.record(connection, owner, 1, Batch(number, {0: number}, {0: number + 1}, 1, now()))
    return waited


def _names(place: str) -> Iterator[str]:
    return (path.name for path in Path(place.removeprefix("file:")).iterdir())


def _files(folder: Path, count: int) -> list[Path]:
    folder.mkdir(parents=True)
    made = [folder / f"part-{number:05d}.parquet" for number in range(count)]
    for path in made:
        path.touch()
    return made
