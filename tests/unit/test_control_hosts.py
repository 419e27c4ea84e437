"""Supervisors and views on several hosts over one registry: none takes another host's driver for one that has ended."""

from __future__ import annotations

import os
import random
import socket
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from rewind.core import lifecycle
from rewind.registry import leases, schema, streams
from rewind.registry.database import now, writing
from rewind.registry.leases import Process
from rewind.runtime.drivers import supervise
from rewind.runtime.drivers.driver_state import Drivers
from tests.support.fakes import installation

OWNER = "visits_converter-g1"


@pytest.fixture
def settings(tmp_path):
    made = installation(tmp_path / "home")
    with writing(made.registry_url) as connection:
        streams.wish(connection, OWNER, streams.GENERATION, streams.RUN)
    return made


@pytest.fixture
def host(monkeypatch):
    """Be on a host from now on: `host("a")`."""
    return lambda name: monkeypatch.setattr(socket, "gethostname", lambda: name)


@pytest.fixture
def launches(settings, monkeypatch):
    """The hosts on which a driver was started; one that is started is a process that lives for ever."""
    found = []

    def launch(_settings, owner, _kind, _number):
        found.append(socket.gethostname())
        process = leases.process_of(os.getpid())
        with writing(settings.registry_url) as connection:
            streams.set_launched(connection, owner, leases.placed(process))
        return process

    monkeypatch.setattr(supervise, "launch", launch)
    return found


def taken(settings):
    with writing(settings.registry_url) as connection:
        return leases.take(connection, OWNER, leases.this_driver())


def aged(settings, table, seconds):
    """Let something have happened so long ago."""
    column = {"streams": "launched_at", "leases": "renewed_at"}[table]
    at = now() - timedelta(seconds=seconds)
    with writing(settings.registry_url) as connection:
        connection.execute(update(schema.metadata.tables[table]).values({column: at}))


def stream(settings):
    with writing(settings.registry_url) as connection:
        return streams.needed(connection, OWNER)


def driver(settings):
    with writing(settings.registry_url) as connection:
        return Drivers(connection, [OWNER], now()).of(OWNER, lifecycle.LIVE)


def test_a_driver_that_another_host_starts_is_waited_for(settings, host, launches):
    host("a")
    assert supervise.look(settings, OWNER).state == supervise.STARTING
    host("b")
    for _ in range(5):
        assert supervise.look(settings, OWNER).state == supervise.STARTING
    assert (driver(settings).state, driver(settings).pid) == ("starting", None)
    assert (launches, stream(settings).failures, stream(settings).starts) == (["a"], 0, 1)


def test_one_that_never_took_its_lease_is_given_up(settings, host, launches):
    host("a")
    supervise.look(settings, OWNER)
    host("b")
    aged(settings, "streams", streams.START.total_seconds() - 5)
    assert supervise.look(settings, OWNER).state == supervise.STARTING
    aged(settings, "streams", streams.START.total_seconds() + 1)
    assert supervise.look(settings, OWNER).state == supervise.WAITING
    assert (launches, stream(settings).failures) == (["a"], 1)


def test_one_that_gave_its_lease_back_has_ended_wherever_it_was(settings, host, launches):
    host("a")
    supervise.look(settings, OWNER)
    token = taken(settings)
    host("b")
    assert supervise.look(settings, OWNER).state == supervise.RUNNING
    with writing(settings.registry_url) as connection:
        leases.give_back(connection, OWNER, token)
    assert supervise.look(settings, OWNER).state == supervise.WAITING
    assert stream(settings).failures == 1


def test_a_silent_driver_is_dead_on_every_host_but_is_not_replaced(settings, host, launches):
    host("a")
    supervise.look(settings, OWNER)
    token = taken(settings)
    host("b")
    assert driver(settings).state == "elsewhere"
    assert supervise.look(settings, OWNER).message.endswith(f"token {token}, on a")
    aged(settings, "leases", 61)
    seen = driver(settings)
    assert (seen.state, seen.cause) == ("dead", "nothing was heard of a for 61 s")
    look = supervise.look(settings, OWNER)
    assert (look.state, launches) == (supervise.RUNNING, ["a"])
    assert f"declare-dead {OWNER} --token {token}" in look.message
    host("a")
    told = f"nothing was heard of pid {os.getpid()}, which lives, for 61 s"
    assert (driver(settings).state, driver(settings).cause) == ("dead", told), (
        "its own host sees a process that is silent"
    )


def test_ending_all_of_a_host_leaves_the_drivers_of_another(settings, host, launches):
    host("a")
    supervise.look(settings, OWNER)
    host("b")
    supervise.stop_all(settings, timeout=1)
    assert stream(settings).launched["host"] == "a"


def test_a_process_of_another_boot_does_not_live(monkeypatch):
    this = leases.placed(leases.process_of(os.getpid()))
    assert leases.lives(this)
    assert not leases.lives({**this, "boot": "another"})
    assert not leases.lives({**this, "host": "another"})
    assert leases.here({**this, "host": "another"}) is None
    # As an older release wrote it.
    assert leases.lives({"pid": this["pid"], "started": this["started"]})


@pytest.mark.shows("secure", drawn_looks_of_two_hosts="200, never two drivers")
def test_drawn_looks_of_two_hosts_start_one_driver_at_a_time(settings, host, monkeypatch):
    """Each driver that is started takes its lease a moment later, runs, and ends in order or by a kill."""
    draw = random.Random(11)
    alive: dict[str, Process] = {}
    monkeypatch.setattr(leases, "process_of", lambda pid: alive.get((socket.gethostname(), pid)))
    monkeypatch.setattr(supervise, "_this_process", lambda: Process(1, 1))
    numbers = iter(range(100, 10_000))
    started = []

    def launch(_settings, owner, _kind, _number):
        process = Process(next(numbers), 1)
        alive[socket.gethostname(), process.pid] = process
        started.append((socket.gethostname(), process))
        with writing(settings.registry_url) as connection:
            streams.set_launched(connection, owner, leases.placed(process))
        return process

    monkeypatch.setattr(supervise, "launch", launch)
    for _ in range(200):
        with writing(settings.registry_url) as connection:
            connection.execute(update(schema.streams).values(next_start_at=None, failures=0, quarantined_at=None))
        host(draw.choice("ab"))
        supervise.look(settings, OWNER)
        # Those that live and may write: one at most, whichever host looked.
        assert len(alive) <= 1, alive
        if not alive:
            continue
        ((where, pid),) = alive
        did = draw.choice(["nothing", "take", "end", "kill"])
        host(where)
        holder = replace(leases.this_driver(), host=where, processes=(alive[where, pid],))
        with writing(settings.registry_url) as connection:
            lease = leases.read(connection, OWNER)
            held = lease is not None and lease.holder is not None and lease.holder.processes[0].pid == pid
            if did == "take" and not held:
                leases.take(connection, OWNER, holder)
            elif did == "end" and held:
                leases.give_back(connection, OWNER, lease.token)
                alive.clear()
            elif did == "kill":
                # Its own host finds out; the other one waits for that.
                alive.clear()
    assert len(started) > 20
    assert {where for where, _ in started} == {"a", "b"}
