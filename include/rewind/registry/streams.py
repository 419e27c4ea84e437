"""Wishes for streams, and what their supervisors count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, insert, select, update

from rewind.core import causes
from rewind.core.errors import RefusedError
from rewind.registry import leases, owners, schema
from rewind.registry.database import now
from rewind.registry.leases import Lease

RUN, DRAIN = "run", "drain"
GENERATION, MIRROR = "generation", "mirror"
MOST_FAILURES = 5
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=5)
START = timedelta(minutes=5)
"""Within this time a driver that another host has started takes its lease, or is given up."""
AWAY_PAUSE = timedelta(seconds=30)
"""Between starts while broker, registry or disk are away: no failure of the stream, however long it takes."""

_table = schema.streams


@dataclass(frozen=True)
class Stream:
    """A stream as the registry holds it.

    Attributes:
        owner: Job id, or the mirror's owner name.
        kind: generation or mirror.
        wish: run or drain.
        starts: How often a driver was started.
        failures: Failures since the last healthy hour.
        last_failure: How the last one ended: its cause in the first line, then what was found of it.
        next_start_at: No start before this instant, UTC.
        quarantined_at: Since when it is set aside, UTC; None when it is not.
        launched: The spark-submit that was started last (`leases.placed`), until its end has been seen.
        launched_at: When it was started, UTC.
        paused_dag: The DAG that supervises it, while somebody has paused that; None when it is not.
    """

    owner: str
    kind: str
    wish: str
    starts: int
    failures: int
    last_failure: str | None
    next_start_at: datetime | None
    quarantined_at: datetime | None
    launched: dict[str, Any] | None
    launched_at: datetime | None
    paused_dag: str | None = None

    @property
    def cause(self) -> str:
        """Why the last driver ended, in one line; empty when none has failed."""
        return causes.headline(self.last_failure)


def read(connection: Connection, owner: str) -> Stream | None:
    """Return a stream, or None when nothing was ever wished for it."""
    row = connection.execute(select(_table).where(_table.c.owner == owner)).one_or_none()
    return None if row is None else Stream(**row._mapping)


def all_of(connection: Connection) -> list[Stream]:
    """Return all streams."""
    return [Stream(**row._mapping) for row in connection.execute(select(_table).order_by(_table.c.owner))]


def read_all(connection: Connection, owners: Any) -> list[Stream]:
    """Return the streams of owners, given as a list or as a query of names."""
    return [Stream(**row._mapping) for row in connection.execute(select(_table).where(_table.c.owner.in_(owners)))]


def owners_of(connection: Connection, kind: str) -> list[str]:
    """Return the owners of all streams of a kind."""
    return list(connection.execute(select(_table.c.owner).where(_table.c.kind == kind)).scalars())


def starting(stream: Stream, lease: Lease | None, at: datetime) -> bool:
    """Return whether the driver that was started last lives, or may live, without having taken its lease yet.

    One on another host cannot be seen. It may be starting for `START`; it has ended before that when the lease
    was given back since.
    """
    if stream.launched is None or stream.launched_at is None:
        return False
    if leases.here(stream.launched) is not None:
        return leases.lives(stream.launched)
    given_back = lease is not None and lease.holder is None and lease.renewed_at >= stream.launched_at
    return not given_back and at - stream.launched_at < START


def wish(connection: Connection, owner: str, kind: str, wanted: str) -> None:
    """Wish that a stream runs or drains; a wish to run lifts a quarantine.

    Raises:
        RefusedError: A mirror's name is that of a job.
    """
    found = read(connection, owner)
    if kind == MIRROR and (found is None or found.kind != MIRROR):
        owners.claim(connection, [owners.of_mirror(owner)])
    values: dict[str, Any] = {"wish": wanted}
    if wanted == RUN:
        values |= {"quarantined_at": None, "failures": 0, "next_start_at": None}
    if found is None:
        values |= {"owner": owner, "kind": kind, "starts": 0, "failures": 0}
        connection.execute(insert(_table).values(**values))
    else:
        connection.execute(update(_table).where(_table.c.owner == owner).values(**values))


def count_start(connection: Connection, owner: str) -> int:
    """Record that a driver is about to be started and return the number of this start, from 1."""
    found = needed(connection, owner)
    connection.execute(update(_table).where(_table.c.owner == owner).values(starts=found.starts + 1))
    return found.starts + 1


def set_launched(connection: Connection, owner: str, launched: dict[str, Any] | None) -> None:
    """Record the spark-submit that was started, or that its end has been seen."""
    values = {"launched": launched, "launched_at": None if launched is None else now()}
    connection.execute(update(_table).where(_table.c.owner == owner).values(**values))


def count_failure(connection: Connection, owner: str, how: str) -> Stream:
    """Record that a driver ended unwished, with the pause before the next start; quarantine a crash loop."""
    failures = needed(connection, owner).failures + 1
    pause = min(FIRST_PAUSE * 2 ** (failures - 1), LONGEST_PAUSE)
    quarantine = now() if failures >= MOST_FAILURES else None
    values = {
        "failures": failures,
        "last_failure": how,
        "next_start_at": now() + pause,
        "quarantined_at": quarantine,
        "launched": None,
    }
    connection.execute(update(_table).where(_table.c.owner == owner).values(**values))
    return needed(connection, owner)


def count_absence(connection: Connection, owner: str, how: str) -> Stream:
    """Record that a driver ended because the world was away: a pause, and nothing towards a quarantine."""
    values = {"last_failure": how, "next_start_at": now() + AWAY_PAUSE, "launched": None}
    connection.execute(update(_table).where(_table.c.owner == owner).values(**values))
    return needed(connection, owner)


def note_pause(connection: Connection, owner: str, dag_id: str | None) -> None:
    """Record that the DAG which supervises a stream is paused, or with None that it is not."""
    connection.execute(update(_table).where(_table.c.owner == owner).values(paused_dag=dag_id))


def paused(dag_id: str) -> str:
    """Return what a paused DAG means for its streams, and how that ends."""
    cure = f"switch it on in Airflow's list of DAGs, or run `airflow dags unpause {dag_id}`"
    return f"the DAG {dag_id} is paused, so nobody starts the driver when it ends: {cure}"


def set_aside(connection: Connection, owner: str, how: str) -> Stream:
    """Record that a driver ended on what no further start can heal: a person has to look first."""
    found = needed(connection, owner)
    values = {"failures": found.failures + 1, "last_failure": how, "quarantined_at": now(), "launched": None}
    connection.execute(update(_table).where(_table.c.owner == owner).values(**values))
    return needed(connection, owner)


def forgive(connection: Connection, owner: str) -> None:
    """Forget the failures of a stream that has been healthy for an hour."""
    connection.execute(update(_table).where(_table.c.owner == owner).values(failures=0, next_start_at=None))


def needed(connection: Connection, owner: str) -> Stream:
    """Return a stream.

    Raises:
        RefusedError: Nothing was ever wished for it.
    """
    found = read(connection, owner)
    if found is None:
        raise RefusedError("owner", f"{owner!r} is no stream", "Deploy the pipeline, or start the mirror")
    return found
