"""The lease of a step's submit: whoever submits next first ends what the last one left, or follows it further.

Airflow may take a task for dead whose driver lives, and its way to end one may fail. So each submit holds a lease of
its own while its driver lives, and only proof of that driver's end frees it (ADR 0014).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, literal, select, true, union_all

from rewind.core.errors import LeaseHeldError, LeaseLostError, RefusedError
from rewind.core.settings import Settings
from rewind.registry import leases, rewinds, schema
from rewind.registry.database import reading, writing
from rewind.registry.leases import Holder, Lease, Process
from rewind.runtime.drivers import processes

VARIABLE = "REWIND_SUBMIT"
"""Carries the mark of a submit into every process that it starts."""
ENDED = frozenset({"FINISHED", "KILLED", "FAILED", "ERROR"})
"""States in which a standalone cluster has no process of a driver; UNKNOWN is none of them."""
STARTED, REPLACED, REATTACHED = "started", "replaced", "re-attached"
ORPHAN = "orphan driver"

_FACT = "driver."

StateOf = Callable[[str], str | None]
"""Asks a cluster for the state of a driver; None when it does not answer."""


@dataclass(frozen=True)
class Claim:
    """Who wants to submit what.

    Attributes:
        owner: Name of the submit, `<rewind id>.<step>`, or `<pipeline>.<job>` for what is no step of a rewind.
        run: The task of the DAG run that submits.
        rewind_id: The rewind whose step it is, if any.
    """

    owner: str
    run: str
    rewind_id: str | None = None


@dataclass(frozen=True)
class Hold:
    """The lease of a submit, taken.

    Attributes:
        owner: Name of the submit.
        token: Its token.
        holder: What the registry knows of the holder.
        how: started, replaced (what the last one left was ended first) or re-attached.
    """

    owner: str
    token: int
    holder: Holder
    how: str


def mark(settings: Settings, owner: str) -> str:
    """Return what the processes of a submit carry; of two installations on one host, each has its own."""
    return f"{settings.home}:{owner}"


def take(settings: Settings, claim: Claim, state_of: StateOf) -> Hold:
    """Take the lease of a submit, after the last one's driver is proved to be gone, or to follow it to its end.

    Raises:
        RefusedError: The last one's driver is an orphan: it runs in the cluster, and was told to end or is another
            run's.
        LeaseHeldError: Another run's task watches it, it does not end, or nothing can be found out of it.
    """
    with reading(settings.registry_url) as connection:
        before = leases.read(connection, claim.owner)
    left = before.holder if before is not None else None
    how = STARTED if left is None else _settled(claim, left, state_of)
    driver = left.driver if left is not None and how == REATTACHED else ""
    holder = replace(_this_task(), mark=mark(settings, claim.owner), driver=driver, run=claim.run)
    with writing(settings.registry_url) as connection:
        if before is not None:
            leases.give_back(connection, claim.owner, before.token)
        token = leases.take(connection, claim.owner, holder)
        if claim.rewind_id is not None and how != STARTED:
            rewinds.fix(connection, claim.rewind_id, _fact(claim.owner, token), how)
    return Hold(claim.owner, token, holder, how)


def name_driver(settings: Settings, hold: Hold, driver: str) -> Hold:
    """Record the id that a cluster gave to the driver.

    Raises:
        LeaseLostError: A newer submit holds the lease.
    """
    return _noted(settings, hold, replace(hold.holder, driver=driver))


def orphan(settings: Settings, hold: Hold) -> Hold:
    """Record that the driver is told to end: until its end is seen, it is an orphan.

    Raises:
        LeaseLostError: A newer submit holds the lease, and the driver is no more this one's to end.
    """
    return _noted(settings, hold, replace(hold.holder, orphan=True))


def kill(hold: Hold) -> None:
    """End by force all that is left of a submit here, also what its own parent did not take along."""
    processes.kill(processes.marked(VARIABLE, hold.holder.mark))


def release(settings: Settings, hold: Hold) -> None:
    """Give the lease back, the driver in a cluster having ended, unless a process of the submit lives here."""
    if not processes.marked(VARIABLE, hold.holder.mark):
        with writing(settings.registry_url) as connection:
            leases.give_back(connection, hold.owner, hold.token)


def refuse_living(settings: Settings, rewind_id: str, state_of: StateOf) -> None:
    """Check that no step of a rewind has a living driver.

    Raises:
        RefusedError: One has an orphan in a cluster.
        LeaseHeldError: One has a driver that lives, or may live.
    """
    with reading(settings.registry_url) as connection:
        owner = schema.leases.c.owner
        owners = connection.execute(select(owner).where(owner.startswith(f"{rewind_id}."))).scalars().all()
        held = [leases.read(connection, owner) for owner in owners]
    for lease in held:
        if lease is not None and lease.holder is not None:
            _refuse_living(lease.owner, lease.holder, state_of)


@dataclass(frozen=True)
class Submits:
    """What the registry holds of the submits of steps.

    Attributes:
        how: How some of them began, by rewind and name of the fact.
        leases: Their leases.
    """

    how: Mapping[tuple[str, str], str]
    leases: tuple[Lease, ...]


def submits(connection: Connection, rewind_ids: Sequence[str], steps: Collection[str]) -> Submits:
    """Return what the registry holds of the submits of some steps of some rewinds."""
    facts = schema.facts
    told = facts.c.rewind_id.in_(rewind_ids) & facts.c.name.startswith(_FACT)
    how = {(row.rewind_id, row.name): str(row.value) for row in connection.execute(select(facts).where(told))}
    return Submits(how, tuple(leases.read_all(connection, _owners(rewind_ids, steps)).values()))


def seen(made: Submits) -> dict[tuple[str, str], str]:
    """Return the newest drivers that were re-attached, replaced or are orphans, by rewind and step.

    It looks at all processes of this host: not within a transaction.
    """
    found = {}
    for lease in made.leases:
        rewind_id, _, step = lease.owner.rpartition(".")
        if lease.holder is not None and _watched_by_nobody(lease.holder):
            found[rewind_id, step] = f"{ORPHAN} {lease.holder.driver}".strip()
        elif (fact := (rewind_id, _fact(lease.owner, lease.token))) in made.how:
            found[rewind_id, step] = made.how[fact]
    return found


def _owners(rewind_ids: Sequence[str], steps: Collection[str]) -> Any:
    """Return the query that names the submits of steps: so many names are no parameters of a query."""
    table = schema.rewinds
    each = union_all(*[select(literal(step).label("step")) for step in steps]).subquery()
    names = select(table.c.id + "." + each.c.step).select_from(table.join(each, true()))
    return names.where(table.c.id.in_(rewind_ids))


def _settled(claim: Claim, left: Holder, state_of: StateOf) -> str:
    """End what the last submit left, or find that it is to be followed further; return how the next one begins."""
    if left.driver:
        return _settled_in_cluster(claim, left, state_of)
    living = _living(claim.owner, left)
    if not living:
        return STARTED
    if left.run != claim.run and _task_lives(left):
        raise LeaseHeldError(f"{claim.owner} is driven by {left.run}")
    if not processes.end(living):
        raise LeaseHeldError(f"{claim.owner}: {ORPHAN}, processes {[p.pid for p in living]} do not end")
    return REPLACED


def _settled_in_cluster(claim: Claim, left: Holder, state_of: StateOf) -> str:
    state = state_of(left.driver)
    if state in ENDED:
        return STARTED
    if left.orphan or left.run != claim.run:
        raise RefusedError(*_orphaned(claim.owner, left, state))
    if state is None:
        raise LeaseHeldError(f"{claim.owner}: the cluster does not say what became of driver {left.driver}")
    return REATTACHED


def _refuse_living(owner: str, left: Holder, state_of: StateOf) -> None:
    if left.driver and (state := state_of(left.driver)) not in ENDED:
        raise RefusedError(*_orphaned(owner, left, state))
    if not left.driver and _living(owner, left):
        raise LeaseHeldError(f"{owner} is driven by {left.run}: mark that task as failed, or wait for its end")


def _orphaned(owner: str, left: Holder, state: str | None) -> tuple[str, str, str]:
    problem = f"{ORPHAN} {left.driver} of {left.run} is {state or 'out of sight'}"
    return owner, problem, f"End it in the cluster, then clear this task; if it is gone: {declared_dead(owner)}"


def declared_dead(owner: str) -> str:
    """Return how an operator says that what holds a lease is dead."""
    return f"`rewind declare-dead {owner}`"


def _living(owner: str, left: Holder) -> list[Process]:
    """Return the processes of a submit that live, its task among them.

    Raises:
        LeaseHeldError: They were on another host, and may live.
    """
    if left.host != socket.gethostname():
        unseen = "whether it lives is not to be seen from here"
        raise LeaseHeldError(
            f"{owner} was submitted on host {left.host}: {unseen}; if it is gone: {declared_dead(owner)}"
        )
    tasks = [p for p in left.processes if leases.process_of(p.pid) == p and p.pid != os.getpid()]
    return list(dict.fromkeys([*tasks, *processes.marked(VARIABLE, left.mark)]))


def _task_lives(left: Holder) -> bool:
    return any(leases.process_of(p.pid) == p for p in left.processes)


def _watched_by_nobody(holder: Holder) -> bool:
    if holder.orphan and holder.driver:
        return True
    if holder.host != socket.gethostname() or _task_lives(holder):
        return False
    return bool(holder.driver or processes.marked(VARIABLE, holder.mark))


def _this_task() -> Holder:
    this = leases.this_driver()
    return replace(this, processes=this.processes[:1])


def _noted(settings: Settings, hold: Hold, holder: Holder) -> Hold:
    with writing(settings.registry_url) as connection:
        if not leases.note(connection, hold.owner, hold.token, holder):
            raise LeaseLostError(f"{hold.owner}: token {hold.token} has lost the lease")
    return replace(hold, holder=holder)


def _fact(owner: str, token: int) -> str:
    return f"{_FACT}{owner.rpartition('.')[2]}.{token}"
