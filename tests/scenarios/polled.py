"""Many pipelines whose streams record batches, while supervisors and a page look at all of them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from rewind.core import lifecycle
from rewind.core.model import Batch
from rewind.registry import database, generations, leases, progress, streams
from rewind.registry.database import now, reading, writing
from rewind.registry.snapshot import snapshot
from rewind.views.status_jobs import Jobs
from tests.support import fakes

OPENERS = {"reading": reading, "writing": writing}
PROCESSES = 2
"""Of writers, and of those that look: more than the machine has cores measure the machine."""
LOOKS = 3
"""Transactions of one look at a stream, as a supervisor makes them."""


@dataclass(frozen=True)
class Polled:
    """What the writers met.

    Attributes:
        writes: How many batches were recorded.
        looks: How many transactions looked at streams meanwhile.
        longest: Milliseconds that a writer waited at most before it could write.
        mean: The same on average.
    """

    writes: int
    looks: int
    longest: float
    mean: float


def prepare(url: str, pipelines: int) -> list[str]:
    """Make a registry with so many live pipelines, each with a stream, and return their jobs."""
    database.upgrade(url)
    owners = []
    with writing(url) as connection:
        for number in range(pipelines):
            pipeline = replace(fakes.PIPELINE, name=f"pipeline_{number}", output_topic=f"out_{number}")
            made = generations.create(connection, fakes.generation(pipeline, state=lifecycle.CANDIDATE), None)
            generations.set_first(connection, made.job_id)
            streams.wish(connection, made.job_id, streams.GENERATION, streams.RUN)
            owners.append(made.job_id)
    return owners


def measured(url: str, owners: Sequence[str], seconds: float, opener: str) -> Polled:
    """Let each stream record a batch a second while all are looked at, and return how the writers waited.

    Args:
        url: URL of the registry.
        owners: The jobs.
        seconds: For how long.
        opener: By what a look opens the registry, `reading` or `writing`.
    """
    parts = [list(owners[number::PROCESSES]) for number in range(PROCESSES)]
    with ProcessPoolExecutor(2 * PROCESSES + 1, multiprocessing.get_context("spawn")) as pool:
        written = [pool.submit(_write_all, url, part, seconds) for part in parts]
        looked = [pool.submit(_look_at_all, url, part, seconds, opener) for part in parts]
        page = pool.submit(_show_all, url, seconds)
        waits = [wait for one in written for wait in one.result()]
        looks = sum(one.result() for one in looked)
        page.result()
    return Polled(len(waits), looks, 1_000 * max(waits), 1_000 * sum(waits) / len(waits))


def _write_all(url: str, owners: Sequence[str], seconds: float) -> list[float]:
    begun, waits = time.monotonic(), list[float]()
    for number in range(int(seconds)):
        for owner in owners:
            asked = time.monotonic()
            with writing(url) as connection:
                waits.append(time.monotonic() - asked)
                progress.record(connection, owner, 1, Batch(number, {0: number}, {0: number + 1}, 1, now()))
        _until(begun + number + 1)
    return waits


def _look_at_all(url: str, owners: Sequence[str], seconds: float, opener: str) -> int:
    begun, looks = time.monotonic(), 0
    opened = OPENERS[opener]
    for number in range(int(seconds)):
        for owner in owners:
            with opened(url) as connection:
                generation = generations.read(connection, owner)
            with opened(url) as connection:
                progress.position(connection, owner, generation.handoff)
                progress.newest(connection, owner)
            with opened(url) as connection:
                streams.read(connection, owner)
                leases.read(connection, owner)
            looks += LOOKS
        _until(begun + number + 1)
    return looks


def _show_all(url: str, seconds: float) -> None:
    begun = time.monotonic()
    for number in range(int(seconds)):
        with snapshot(url) as connection:
            Jobs(connection, now())
        _until(begun + number + 1)


def _until(at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))
