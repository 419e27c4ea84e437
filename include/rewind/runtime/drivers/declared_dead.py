"""An operator's word that a driver is dead, where nothing can prove it: another host's, or one that is frozen.

It overrides the proof that a lease asks for (ADR 0004), so it is made for one token alone and kept for ever. A driver
that was alive after all finds its token lost: it records nothing, begins no batch, and ends.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import Connection, insert, update

from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.settings import Settings
from rewind.registry import audit, leases, schema, streams
from rewind.registry.database import now, writing
from rewind.registry.leases import Lease
from rewind.runtime.drivers import guard

CUT_OFF = timedelta(seconds=guard.REGISTRY_AWAY_SECONDS) + timedelta(minutes=1)
"""After so long without a renewal a stream's driver that only lost the registry has ended itself, its batch too."""


def held(connection: Connection, owner: str) -> Lease:
    """Return the lease of an owner that a driver holds.

    Raises:
        RefusedError: Nobody holds it.
    """
    found = leases.read(connection, owner)
    if found is None or found.holder is None:
        raise RefusedError("owner", f"nobody holds the lease of {owner!r}", "Look at `python -m rewind status`")
    return found


def declare(settings: Settings, owner: str, token: int, person: str, reason: str, *, stopped: bool = False) -> Lease:
    """Declare the driver that holds a token dead; the next look of the supervisor starts another one.

    Args:
        settings: The installation.
        owner: A job id, or a mirror's owner name.
        token: The token that the operator has seen: a later holder is never meant.
        person: Who says so.
        reason: Why, for the history.
        stopped: That its processes were seen to be gone, or frozen. Otherwise one that only lost the registry may
            still write, and its lease does not end before it has ended itself.

    Returns:
        The lease as it was held.

    Raises:
        RefusedError: Nobody holds the lease, no reason is given, or the driver may still write.
        WorldMovedError: Another token holds it.
    """
    if not reason.strip():
        raise RefusedError("reason", "is empty", "Say how you know that the driver is dead")
    with side_effect("death.declare"), writing(settings.registry_url) as connection:
        found = held(connection, owner)
        if found.token != token:
            cure = "Look again: a new driver may live"
            raise WorldMovedError("token", f"{owner} is held with token {found.token}, not {token}", cure)
        if not stopped:
            _refuse_cut_off(found)
        _record(connection, found, person, reason)
        pipeline = audit.of_owner(connection, owner)
        audit.note(
            connection,
            audit.Act(person, "declare-dead", pipeline, owner, {"token": token, "reason": reason, "stopped": stopped}),
        )
        streams.set_launched(connection, owner, None)
    # The frozen driver keeps its lock on the file that it opened; the next one makes another.
    guard.lock_file(settings.home, owner).unlink(missing_ok=True)
    return found


def _refuse_cut_off(held: Lease) -> None:
    # A submit's lease is not renewed: that it is silent tells nothing.
    if held.holder is None or held.holder.run or not leases.alive(held.holder):
        return
    ends = held.renewed_at + CUT_OFF
    if now() < ends:
        problem = f"a driver of {held.owner} that only lost the registry may write until {ends:%H:%M:%S}Z"
        cure = "Try again then, or say with --stopped that you have seen its processes gone or frozen"
        raise RefusedError("token", problem, cure)


def _record(connection: Connection, lost: Lease, person: str, reason: str) -> None:
    assert lost.holder is not None
    values = {"owner": lost.owner, "token": lost.token, "holder": asdict(lost.holder), "person": person}
    connection.execute(insert(schema.deaths).values(**values, reason=reason, at=now()))
    mine = schema.leases.c.owner == lost.owner
    # The token grows with the declaration, not only with the next driver: from now on the old one has lost.
    connection.execute(update(schema.leases).where(mine).values(token=lost.token + 1, holder=None, renewed_at=now()))
