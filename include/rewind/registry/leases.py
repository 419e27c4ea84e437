"""Leases: one driver an owner, proved dead before another starts.

A lease never passes on by expiry alone: the holder's processes must be gone. A process is known by host,
pid and start time (`/proc/<pid>/stat`, field 22: https://man7.org/linux/man-pages/man5/proc.5.html), since
pids are used again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select, update

from rewind.core.errors import LeaseHeldError, LeaseLostError
from rewind.registry import schema
from rewind.registry.database import now

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the clocks of an installation may differ; drivers renew their leases far more often."""

SILENCE = timedelta(seconds=50)
"""After so long without a renewal a driver counts as dead for those who look: it missed ten. All see it in a minute."""

_table = schema.leases


@dataclass(frozen=True)
class Process:
    """A process, told from later ones with its pid by its start time in clock ticks since boot."""

    pid: int
    started: int


@dataclass(frozen=True)
class Holder:
    """Who holds a lease.

    Attributes:
        host: Host name.
        boot: Id of the host's boot; after another boot none of its processes lives.
        processes: The Python driver and its JVM; of a step's submit, the task that watches it.
        group: Process group of the driver's session.
        mark: What a step's submit carries in its environment, and so do all processes that it starts.
        driver: Id that a cluster gave to a step's driver; empty when the driver runs here.
        run: The task of a DAG run that submitted a step; empty for a stream.
        step: The step that holds a job's lease in the place of its stream; empty for a stream.
        orphan: Whether the end of a step's driver was asked for and has not been seen.
    """

    host: str
    boot: str
    processes: tuple[Process, ...]
    group: int
    mark: str = ""
    driver: str = ""
    run: str = ""
    orphan: bool = False
    step: str = ""


@dataclass(frozen=True)
class Lease:
    """A lease as the registry holds it; without holder it was given back."""

    owner: str
    token: int
    holder: Holder | None
    renewed_at: datetime


def process_of(pid: int) -> Process | None:
    """Return a living process of this host, or None when there is none (a zombie has ended)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


def placed(process: Process) -> dict[str, Any]:
    """Return a process of this host as the registry holds it: a pid alone says nothing on another one."""
    return {**asdict(process), "host": socket.gethostname(), "boot": _boot()}


def here(found: Mapping[str, Any]) -> Process | None:
    """Return a process that `placed` wrote; None when it is one of another host, unseen from here."""
    # An older release wrote no host: its supervisor was the only one.
    if found.get("host", socket.gethostname()) != socket.gethostname():
        return None
    return Process(found["pid"], found["started"])


def lives(found: Mapping[str, Any]) -> bool:
    """Return whether a process that `placed` wrote lives on this host."""
    process = here(found)
    same_boot = found.get("boot", _boot()) == _boot()
    return process is not None and same_boot and process_of(process.pid) == process


def silent(lease: Lease, at: datetime) -> timedelta | None:
    """Return for how long nothing was heard of a holder that should have renewed its lease; None when it speaks.

    A stream's driver and a step's renew every five seconds; a lease of a submit is not renewed, so it tells nothing.
    """
    if lease.holder is None or lease.holder.run or at - lease.renewed_at <= SILENCE:
        return None
    return at - lease.renewed_at


def this_driver() -> Holder:
    """Return this process and its parent, the JVM that spark-submit runs it from."""
    pids = (os.getpid(), os.getppid())
    processes = tuple(p for p in map(process_of, pids) if p is not None)
    return Holder(socket.gethostname(), _boot(), processes, os.getpgrp())


def alive(holder: Holder) -> bool:
    """Return whether a process of the holder lives, or may live: on another host it can not be seen from here."""
    if holder.driver or holder.host != socket.gethostname():
        return True
    return holder.boot == _boot() and any(process_of(p.pid) == p for p in holder.processes)


def read(connection: Connection, owner: str) -> Lease | None:
    """Return the lease of an owner, or None when it was never taken."""
    row = connection.execute(select(_table).where(_table.c.owner == owner)).one_or_none()
    return None if row is None else Lease(row.owner, row.token, _holder(row.holder), row.renewed_at)


def read_all(connection: Connection, owners: Any) -> dict[str, Lease]:
    """Return the leases of owners, given as a list or as a query of names, by owner."""
    rows = connection.execute(select(_table).where(_table.c.owner.in_(owners)))
    return {row.owner: Lease(row.owner, row.token, _holder(row.holder), row.renewed_at) for row in rows}


def clock_skew(connection: Connection, at: datetime) -> timedelta | None:
    """Return how far this clock, which says `at`, is ahead of all living streams' last words; behind is negative.

    None when it agrees with one of them within `CLOCK_TOLERANCE`, or when no stream lives that could tell.
    """
    rows = connection.execute(select(_table.c.holder, _table.c.renewed_at)).all()
    holders = [(_holder(row.holder), row.renewed_at) for row in rows]
    # A step's lease was written by the clock in question.
    skews = [at - renewed for holder, renewed in holders if holder is not None and not holder.run and alive(holder)]
    least = min(skews, key=abs, default=timedelta(0))
    return least if abs(least) > CLOCK_TOLERANCE else None


def take(connection: Connection, owner: str, holder: Holder) -> int:
    """Take the lease of an owner and return its new token.

    Raises:
        LeaseHeldError: The last holder lives, or may live.
    """
    found = read(connection, owner)
    if found is not None and found.holder is not None and alive(found.holder):
        raise LeaseHeldError(f"{owner} is held with token {found.token} by {found.holder}")
    token = 1 if found is None else found.token + 1
    values = {"token": token, "holder": asdict(holder), "renewed_at": now()}
    if found is None:
        connection.execute(insert(_table).values(owner=owner, **values))
    else:
        # Where the database does not serialise this transaction, another one may have been handed the token.
        seen = (_table.c.owner == owner) & (_table.c.token == found.token)
        if connection.execute(update(_table).where(seen).values(**values)).rowcount != 1:
            raise LeaseHeldError(f"{owner}: another driver took token {token} first")
    return token


def renew(connection: Connection, owner: str, token: int) -> None:
    """Record that the holder of a token lives.

    Raises:
        LeaseLostError: A newer token was handed out.
    """
    mine = (_table.c.owner == owner) & (_table.c.token == token)
    if connection.execute(update(_table).where(mine).values(renewed_at=now())).rowcount != 1:
        found = read(connection, owner)
        raise LeaseLostError(f"{owner}: token {token} has lost to {found.token if found else 'none'}")


def note(connection: Connection, owner: str, token: int, holder: Holder) -> bool:
    """Record what became known of the holder of a token; return whether the token still holds the lease."""
    mine = (_table.c.owner == owner) & (_table.c.token == token)
    return connection.execute(update(_table).where(mine).values(holder=asdict(holder))).rowcount == 1


def give_back(connection: Connection, owner: str, token: int) -> None:
    """End a lease; harmless when a newer token holds it."""
    mine = (_table.c.owner == owner) & (_table.c.token == token)
    connection.execute(update(_table).where(mine).values(holder=None, renewed_at=now()))


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _holder(body: dict[str, Any] | None) -> Holder | None:
    if body is None:
        return None
    processes = tuple(Process(**p) for p in body["processes"])
    # A later release may have written more than this one, frozen in a bundle, knows.
    known = {field.name: body[field.name] for field in fields(Holder) if field.name in body}
    return Holder(**{**known, "processes": processes})
