"""Leases pass on by proof alone, and a guard holds one while its driver works."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from rewind.core.errors import LeaseHeldError, LeaseLostError, RefusedError, RetryError
from rewind.registry import leases, schema
from rewind.registry.database import now, writing
from rewind.registry.leases import Holder, Process
from rewind.runtime.drivers import guard
from rewind.runtime.drivers.guard import REGISTRY_AWAY_SECONDS, Guard
from tests.support.fakes import installation

OWNER = "visits-g1"


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def registry(settings):
    with writing(settings.registry_url) as connection:
        yield connection


@pytest.fixture
def other():
    """Another living process of this host, that ends when it is killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def holder_of(*pids):
    return replace(leases.this_driver(), processes=tuple(leases.process_of(pid) for pid in pids))


# --- who lives


def test_this_driver_is_this_process_and_its_parent_on_this_boot():
    mine = leases.this_driver()
    assert [p.pid for p in mine.processes] == [os.getpid(), os.getppid()]
    assert (mine.host, mine.group) == (socket.gethostname(), os.getpgrp())
    assert leases.alive(mine)


def test_a_holder_lives_until_its_process_has_ended(other):
    holder = holder_of(other.pid)
    assert leases.alive(holder)

    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert leases.process_of(other.pid) is None, "a zombie has ended"
    other.wait()
    assert not leases.alive(holder)


def test_one_process_that_lives_is_enough(other):
    assert leases.alive(replace(holder_of(other.pid), processes=(Process(other.pid, 1), leases.process_of(other.pid))))


def test_another_process_under_the_same_pid_is_another(other):
    found = leases.process_of(other.pid)
    assert found.started > 0
    assert not leases.alive(replace(holder_of(other.pid), processes=(replace(found, started=found.started - 1),)))


def test_a_holder_of_an_earlier_boot_is_dead_although_its_pid_lives(other):
    assert not leases.alive(replace(holder_of(other.pid), boot="another boot"))


def test_a_holder_of_another_host_may_live():
    assert leases.alive(Holder("another host", "another boot", (), 1))


def test_a_process_with_blanks_and_brackets_in_its_name_is_read(tmp_path):
    link = tmp_path / "a) (b"
    link.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(link), "60"])
    try:
        assert leases.process_of(process.pid).started >= leases.process_of(os.getpid()).started
    finally:
        process.kill()
        process.wait()


# --- the guard


def lease(settings):
    with writing(settings.registry_url) as connection:
        return leases.read(connection, OWNER)


def takeover(settings):
    """Hand out a newer token, as after a proof that this driver is dead."""
    with writing(settings.registry_url) as connection:
        connection.execute(update(schema.leases).values(token=schema.leases.c.token + 1))


def test_a_guard_takes_at_entry_and_gives_back_at_exit(settings):
    with Guard(settings, OWNER) as held:
        assert held.token == 1
        assert lease(settings).holder == leases.this_driver()
        held.check()
    assert lease(settings).holder is None
    with Guard(settings, OWNER, "backfill") as held:
        assert held.token == 2
        assert lease(settings).holder == replace(leases.this_driver(), step="backfill")


def test_a_lease_is_given_back_when_the_driver_fails(settings):
    with pytest.raises(ZeroDivisionError), Guard(settings, OWNER):
        _ = 1 / 0
    assert lease(settings).holder is None


def test_a_second_holder_of_the_lock_is_refused_before_the_registry_is_asked(settings):
    with Guard(settings, OWNER):
        with pytest.raises(LeaseHeldError, match="another process of this host holds its lock"):
            Guard(settings, OWNER).__enter__()
        assert lease(settings).token == 1


HOLD = """
import os
from rewind.runtime.drivers.guard import Guard
from rewind.core.settings import from_environment
with Guard(from_environment(os.environ), "visits-g1"):
    print("held", flush=True)
    input()
"""


def test_a_driver_that_is_killed_frees_lock_and_lease(settings, project):
    environment = {**settings.environment(), "PYTHONPATH": str(project / "include")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    driver = subprocess.Popen([sys.executable, "-c", HOLD], env=environment, start_new_session=True, **pipes)
    assert driver.stdout.readline() == "held\n"
    with pytest.raises(LeaseHeldError):
        Guard(settings, OWNER).__enter__()

    driver.kill()
    driver.wait()
    # Its parent, which stands for its JVM, is this process and lives: the lock alone is no proof.
    with pytest.raises(LeaseHeldError, match="is held with token 1"):
        Guard(settings, OWNER).__enter__()
    forget_parent(settings)
    with Guard(settings, OWNER) as held:
        assert held.token == 2


def forget_parent(settings):
    with writing(settings.registry_url) as connection:
        holder = connection.execute(schema.leases.select()).one().holder
        holder["processes"] = holder["processes"][:1]
        connection.execute(update(schema.leases).values(holder=holder))


def test_a_refused_guard_keeps_no_lock(settings):
    with writing(settings.registry_url) as connection:
        leases.take(connection, OWNER, Holder("another host", "b", (), 1))
    with pytest.raises(LeaseHeldError, match="is held with token 1"):
        Guard(settings, OWNER).__enter__()

    with (settings.home / "locks" / f"{OWNER}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_registry_of_newer_code_is_refused_at_entry(settings):
    with writing(settings.registry_url) as connection:
        connection.execute(update(schema.protocol).values(number=schema.PROTOCOL + 1))
    with pytest.raises(RefusedError, match="speaks protocol"):
        Guard(settings, OWNER).__enter__()
    assert lease(settings) is None


@pytest.mark.parametrize("owner", ["../live", "a/b", ""])
def test_a_hostile_owner_makes_no_lock(settings, owner):
    with pytest.raises(RefusedError):
        Guard(settings, owner).__enter__()
    assert not list((settings.home / "locks").glob("**/*.lock"))


def test_a_lost_token_stops_the_driver_before_its_next_write(settings):
    with Guard(settings, OWNER) as held:
        takeover(settings)
        for _ in range(2):
            with pytest.raises(LeaseLostError, match="token 1 has lost to 2"):
                held.check()
    assert lease(settings).holder is not None, "the newer token's lease is not given back"


def test_a_loss_seen_in_the_background_stops_the_driver_too(settings, monkeypatch):
    monkeypatch.setattr(guard, "RENEW_SECONDS", 0.01)
    seen = []
    original = Guard._renew_for_ever
    monkeypatch.setattr(Guard, "_renew_for_ever", lambda self: (original(self), seen.append("ended")))
    with Guard(settings, OWNER) as held:
        takeover(settings)
        # The loop ends by itself at the loss; joining it is no guess at a time.
        for thread in threading.enumerate():
            if thread.name == "lease":
                thread.join(20)
        monkeypatch.setattr(Guard, "renew", lambda self: None)
        with pytest.raises(LeaseLostError):
            held.check()
    assert seen == ["ended"]


def test_a_registry_that_is_away_is_borne_for_its_time_and_no_longer(settings, monkeypatch):
    clock = [1000.0]
    with Guard(settings, OWNER, clock=lambda: clock[0]) as held:

        def away(*_: object):
            raise RetryError("registry away")

        monkeypatch.setattr(guard, "writing", away)
        clock[0] += REGISTRY_AWAY_SECONDS
        held.check()
        clock[0] += 1
        with pytest.raises(LeaseLostError, match=f"{OWNER}: no registry for 901 s"):
            held.check()

        monkeypatch.undo()
        held.check()
        clock[0] += REGISTRY_AWAY_SECONDS
        monkeypatch.setattr(guard, "writing", away)
        held.check()


def test_a_registry_that_is_away_at_the_end_does_not_fail_the_driver(settings, monkeypatch):
    with Guard(settings, OWNER):

        def away(*_: object):
            raise RetryError("registry away")

        monkeypatch.setattr(guard, "writing", away)
    monkeypatch.undo()
    with (settings.home / "locks" / f"{OWNER}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_locked_registry_holds_no_batch_up(settings, monkeypatch):
    with Guard(settings, OWNER) as held:
        asked = []

        @contextmanager
        def locked(url, patience):
            asked.append(patience)
            raise RetryError("registry locked")
            yield

        monkeypatch.setattr(guard, "writing", locked)
        held.check()
        monkeypatch.undo()
    assert asked == [guard.RENEW_MILLISECONDS] == [2_000]


def test_one_driver_that_agrees_is_enough_for_a_clock(settings):
    with writing(settings.registry_url) as connection:
        leases.take(connection, "step-rw-1", replace(leases.this_driver(), run="rewind_plan run plan"))
        later = now() + timedelta(hours=1)
        assert leases.clock_skew(connection, later) is None, "a step's lease tells nothing"
        for number in (1, 2):
            leases.take(connection, f"visits_converter-g{number}", leases.this_driver())
        stuck = schema.leases.c.owner == "visits_converter-g2"
        connection.execute(update(schema.leases).where(stuck).values(renewed_at=now() - timedelta(hours=2)))
        assert leases.clock_skew(connection, now()) is None
        assert leases.clock_skew(connection, now() + timedelta(hours=1)) > timedelta(minutes=59)
        assert leases.clock_skew(connection, now() - timedelta(hours=1)) < timedelta(minutes=-59)
