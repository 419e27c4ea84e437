"""Fifty processes that record batches in one registry on SQLite, beside the way that one would write it first."""

from __future__ import annotations

import multiprocessing
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import NullPool

from benchmarks import rounds
from benchmarks.rounds import Ratio, Spent
from rewind.core.model import Batch
from rewind.registry import database, progress
from rewind.registry.database import now, writing

WRITERS, PAUSE, SECONDS, QUICK_SECONDS = 50, 0.25, 10.0, 4.0
BUSY_MILLISECONDS = 30_000


def measure(quick: bool) -> list[Ratio]:
    """Return the longest wait for the lock, and what a write costs, as multiples of the plain way's."""
    seconds, count = (QUICK_SECONDS, 2) if quick else (SECONDS, 5)
    waits: dict[str, list[Spent]] = {"plain": [], "registry": []}
    ways = {"plain": plain, "registry": writing}
    for number in range(rounds.WARM_UP + count):
        for name, way in ways.items():
            longest, cpu = crowd(way, seconds)
            print(f"  {name:24} longest wait {longest * 1e3:7.1f} ms, {cpu * 1e3:5.2f} CPU ms a write", flush=True)
            if number >= rounds.WARM_UP:
                waits[name].append(Spent(longest, cpu))
    return [
        rounds.ratio("registry_longest_wait_to_plain", waits, "registry", "plain"),
        rounds.ratio("registry_cpu_a_write_to_plain", waits, "registry", "plain", cpu=True),
    ]


@contextmanager
def plain(url: str) -> Iterator[Connection]:
    """Write by a connection each time, and let SQLite wait for its lock by itself."""
    engine = create_engine(url, poolclass=NullPool)

    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", f"busy_timeout={BUSY_MILLISECONDS}", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as connection:
        yield connection


def crowd(way: Callable[[str], Any], seconds: float) -> tuple[float, float]:
    """Let many write for a while; return the longest wait in seconds, and the CPU seconds of one write."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'registry.db'}"
        database.upgrade(url)
        fork = multiprocessing.get_context("fork")
        told, ready = fork.Queue(), fork.Barrier(WRITERS)
        started = [fork.Process(target=_write, args=(way, url, n, seconds, ready, told)) for n in range(WRITERS)]
        for one in started:
            one.start()
        answers = [told.get() for _ in started]
        for one in started:
            one.join()
        _check(Path(folder) / "registry.db", sum(writes for writes, _, _ in answers))
    writes = sum(count for count, _, _ in answers)
    return max(longest for _, longest, _ in answers), sum(cpu for _, _, cpu in answers) / writes


def _write(way: Callable[[str], Any], url: str, number: int, seconds: float, ready: Any, told: Any) -> None:
    owner, made, longest = f"pipeline_{number}-g1", 0, 0.0

    def write() -> float:
        begun = time.monotonic()
        with way(url) as connection:
            waited = time.monotonic() - begun
            progress.record(connection, owner, 1, Batch(made, {0: made}, {0: made + 1}, 1, now()))
        return waited

    write()
    ready.wait()
    # Not all at once, as streams do not.
    time.sleep(PAUSE * number / WRITERS)
    ends, before = time.monotonic() + seconds, time.process_time()
    while time.monotonic() < ends:
        made += 1
        longest = max(longest, write())
        time.sleep(PAUSE)
    told.put((made, longest, time.process_time() - before))


def _check(file: Path, writes: int) -> None:
    with sqlite3.connect(file) as connection:
        (found,) = connection.execute("SELECT count(*) FROM progress").fetchone()
    assert found == writes + WRITERS, f"{found} of {writes + WRITERS} writes stand there"
