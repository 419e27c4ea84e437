"""The state of each stream's driver, by its lease, its stream and the processes of this host."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from rewind.core import lifecycle
from rewind.registry import leases, streams
from rewind.registry.leases import Lease
from rewind.registry.streams import Stream

ENDED = (lifecycle.RETIRED, lifecycle.ABORTED, lifecycle.COLLECTED)
"""States of a job whose stream must not run."""
DRIVEN = ("alive", "draining", "starting", "elsewhere")
"""States of a driver that is there, or may be."""
AT_WORK = {"backfill": "backfilling", "merge": "merging"}
"""What a step does that holds the lease of its job."""


@dataclass(frozen=True)
class Driver:
    """What is known of a stream's driver.

    Attributes:
        state: alive, draining, starting, backfilling or merging (a step's own driver), waiting (backing off),
            quarantined, drained, dead (wished for, but not there), orphan (its JVM without its Python, or alive for
            a job that has ended), elsewhere (on another host, unseen) or none (never wished for).
        pid: Its pid, when it is alive on this host.
        token: Token of the last lease, 0 before the first.
        failures: Failures since the last healthy hour.
        last_failure: How the last one ended.
        cause: The same in one line: exception, message, and where in the pipeline's own code.
        next_start_at: No start before this instant, UTC.
        paused: That the DAG which supervises it is paused, and how that ends; empty when it is not.
        step: The step whose driver it is; empty for that of a stream.
    """

    state: str
    pid: int | None = None
    token: int = 0
    failures: int = 0
    last_failure: str | None = None
    cause: str = ""
    next_start_at: datetime | None = None
    paused: str = ""
    step: str = ""

    def why(self, unknown: str) -> str:
        """Return why it does not run: its DAG, its last failure, or what is said where neither is known."""
        return self.paused or self.cause or unknown


class Drivers:
    """What the registry holds of the drivers of streams, read once for all of them."""

    def __init__(self, connection: Connection, owners: Any, now: datetime) -> None:
        """Read the leases of owners, given as a list or as a query of names, and their streams."""
        self._streams = {stream.owner: stream for stream in streams.read_all(connection, owners)}
        self._leases = leases.read_all(connection, owners)
        self._now = now

    def of(self, owner: str, state: str) -> Driver:
        """Return what is known of the driver of a stream whose job is in a state."""
        return _driver(self._streams.get(owner), self._leases.get(owner), state, self._now)


def _driver(stream: Stream | None, lease: Lease | None, state: str, now: datetime) -> Driver:
    seen = Driver("none", token=0 if lease is None else lease.token)
    if stream is not None:
        paused = streams.paused(stream.paused_dag) if stream.paused_dag and stream.wish == streams.RUN else ""
        seen = replace(seen, failures=stream.failures, last_failure=stream.last_failure, cause=stream.cause)
        seen = replace(seen, paused=paused)
    if lease is not None and lease.holder is not None and leases.alive(lease.holder):
        return _held(replace(seen, step=lease.holder.step), lease, stream, state, now)
    return seen if stream is None else _unheld(seen, stream, lease, now)


def _held(seen: Driver, lease: Lease, stream: Stream | None, state: str, now: datetime) -> Driver:
    holder = lease.holder
    assert holder is not None
    python, here = holder.processes[0], holder.host == socket.gethostname()
    lives = here and leases.process_of(python.pid) == python and state not in ENDED
    silence = leases.silent(lease, now)
    if silence is not None and (lives or not here):
        # All hosts read this alike: that its own one sees a process does not say that it works.
        of = f"pid {python.pid}, which lives," if here else holder.host
        return replace(seen, state="dead", cause=f"nothing was heard of {of} for {silence.total_seconds():.0f} s")
    if not here:
        return replace(seen, state="elsewhere")
    if lives and holder.step:
        return replace(seen, state=AT_WORK[holder.step], pid=python.pid)
    if not lives or stream is None:
        return replace(seen, state="orphan", pid=python.pid)
    return replace(seen, state="draining" if stream.wish == streams.DRAIN else "alive", pid=python.pid)


def _unheld(seen: Driver, stream: Stream, lease: Lease | None, now: datetime) -> Driver:
    if stream.launched is not None and streams.starting(stream, lease, now):
        launched = leases.here(stream.launched)
        return replace(seen, state="starting", pid=None if launched is None else launched.pid)
    if stream.wish == streams.DRAIN:
        return replace(seen, state="drained")
    if stream.quarantined_at is not None:
        return replace(seen, state="quarantined")
    if stream.next_start_at is not None and stream.next_start_at > now:
        return replace(seen, state="waiting", next_start_at=stream.next_start_at)
    return replace(seen, state="dead")
