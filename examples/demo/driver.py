"""Kill the live driver once, and see one successor come back with the old code."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from examples.demo import check, visits
from examples.demo.errors import DemoError
from examples.demo.world import World
from rewind.local.progress import Look
from rewind.registry import leases, progress, streams
from rewind.registry.leases import Holder
from rewind.registry.snapshot import snapshot
from rewind.runtime.drivers import supervise

WITNESSES = 20


@dataclass(frozen=True)
class Killing:
    """How a killed driver came back.

    Attributes:
        job_id: Its job.
        token_before: Token of the killed driver.
        token_after: Token of its successor.
        seconds: How long no driver held the lease.
        witnesses: Records of the successor's that show the old code's bug.
    """

    job_id: str
    token_before: int
    token_after: int
    seconds: float
    witnesses: int


def kill_once(world: World, job_id: str, output: str) -> Killing:
    """Kill the driver of a job with SIGKILL and wait for its successor.

    Raises:
        DemoError: More than one come, or it does not run the old code.
        StuckError: None comes, or the driver is not able to work already.
    """
    before, token = _lease(world, job_id)
    # SIGKILL ends a driver that is stopped, too: it would hide what is wrong.
    world.waits.check()
    _await_pause()
    for process in before.processes:
        if leases.process_of(process.pid) == process:
            os.kill(process.pid, signal.SIGKILL)
    begun = time.monotonic()
    ends = dict(world.topic(output).latest)
    driver = functools.partial(world.driver, job_id)
    after = world.waits.until(f"a successor of {job_id}", lambda: _successor(world, job_id, token), driver)
    seconds = round(time.monotonic() - begun, 1)
    witnesses = world.waits.until("output of the successor", lambda: _old_code(world, output, ends), driver, pause=2)
    drivers = living_drivers(job_id)
    if len(drivers) != 1 or after != token + 1:
        raise DemoError(f"{job_id}: token {token} became {after}, drivers {drivers}: not exactly one successor")
    return Killing(job_id, token, after, seconds, witnesses)


def living_drivers(job_id: str) -> list[int]:
    """Return the pids of the JVMs that run the stream of a job, as the host's process list shows them."""
    wanted = re.compile(rf"{re.escape(job_id)}\.\d+")
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "java" in words[0] and any(wanted.fullmatch(word) for word in words):
            found.append(int(path.parent.name))
    # A JVM that runs a shell command has a child of its own looks for a moment, between fork and exec.
    parents = {pid: _parent(pid) for pid in found}
    return [pid for pid, parent in parents.items() if parent is not None and parent not in found]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def longest_gap(world: World, job_id: str, since: datetime | None = None) -> float:
    """Return the longest time between two committed batches of a job, in seconds, from an instant on."""
    with snapshot(world.settings.registry_url) as connection:
        batches = progress.recent(connection, job_id, 100_000)
    times = [batch.at for batch in reversed(batches) if since is None or batch.at >= since]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    return round(max(gaps, default=0.0), 1)


def _lease(world: World, job_id: str) -> tuple[Holder, int]:
    with snapshot(world.settings.registry_url) as connection:
        found = leases.read(connection, job_id)
    if found is None or found.holder is None or not leases.alive(found.holder):
        raise DemoError(f"{job_id} has no living driver to kill")
    return found.holder, found.token


def _successor(world: World, job_id: str, token: int) -> Look[int]:
    with snapshot(world.settings.registry_url) as connection:
        found, stream = leases.read(connection, job_id), streams.needed(connection, job_id)
    if stream.quarantined_at is not None:
        log = supervise.log_folder(world.settings, job_id)
        raise DemoError(f"{job_id} is quarantined: {stream.cause}. Its logs: {log}")
    fresh = found is not None and found.token > token and found.holder is not None and leases.alive(found.holder)
    far = f"{stream.starts} drivers were started, {stream.failures} have failed"
    return Look(found.token if found is not None and fresh else None, far, (stream.starts, stream.failures))


def _await_pause() -> None:
    # Batches begin with each second. Between two of them nothing is half written, so that the verdict's count of
    # repeats is the same in every demo; kills at any moment are the tests' business.
    time.sleep(1 - time.time() % 1 - 0.1 if time.time() % 1 < 0.9 else 1.9 - time.time() % 1)


def _old_code(world: World, output: str, since: Mapping[int, int]) -> Look[int]:
    """Return how many records since then show the bug, none while there are too few to tell."""
    ends = world.topic(output).latest
    came, needed = sum(ends.values()) - sum(since.values()), WITNESSES * 100 // visits.TOUCHED_PERCENT
    if came < needed:
        return Look(None, f"{came:,} of {needed:,} records", came)
    bodies = [json.loads(r.value) for r in check.read_topic(world.settings.bootstrap, output, ends, since) if r.value]
    shown = [b for b in bodies if visits.touched(int(b["event_identifier"].removeprefix("visit-")))]
    if any(body["visited_page"] != body["visited_page"].lower() for body in shown):
        raise DemoError(f"the successor writes to {output} with new code")
    return Look(len(shown) or None, f"{came:,} records, none that the bug touched", came)
