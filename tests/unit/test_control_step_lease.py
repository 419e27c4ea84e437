"""The lease of a step's submit: what the last one left is ended or followed, and nothing starts beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert

from rewind.core.errors import LeaseHeldError, LeaseLostError, RefusedError
from rewind.core.settings import Settings
from rewind.registry import database, leases, rewinds, schema
from rewind.registry.database import writing
from rewind.registry.leases import Holder
from rewind.runtime.drivers import processes, step_lease
from rewind.runtime.drivers.step_lease import REATTACHED, REPLACED, STARTED, Claim, Hold
from tests.support.workshop import wait_for

CLAIM = Claim("rw-1.backfill", "rewind_visits/r1/backfill", "rw-1")
OTHER = replace(CLAIM, run="rewind_visits/r2/backfill")
# As a JVM's Python driver: in a session of its own, and deaf to a request to end.
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def installation(make_settings: Callable[..., Settings]) -> Settings:
    made = make_settings()
    database.upgrade(made.registry_url)
    with writing(made.registry_url) as connection:
        planned = {"pipeline": "visits", "created_at": database.now()}
        connection.execute(insert(schema.plans).values(id="p-1", body="{}", **planned))
        opened = {"plan_id": "p-1", "job_id": "visits-g2", "state": "active", "reason": "", **planned}
        connection.execute(insert(schema.rewinds).values(id="rw-1", **opened))
    return made


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process that lives until the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def make(**environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", DEAF],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.wait()


def unasked(driver: str) -> str | None:
    raise AssertionError(f"asked for {driver}")


def left(installation: Settings, **known: object) -> Hold:
    """Leave a lease behind, as an attempt does that dies."""
    made = step_lease.take(installation, CLAIM, unasked)
    holder = replace(made.holder, processes=(), **known)
    with writing(installation.registry_url) as connection:
        assert leases.note(connection, made.owner, made.token, holder)
    return replace(made, holder=holder)


def held(installation: Settings) -> Holder | None:
    with writing(installation.registry_url) as connection:
        found = leases.read(connection, CLAIM.owner)
    return found.holder if found else None


def seen(installation: Settings) -> str:
    with writing(installation.registry_url) as connection:
        made = step_lease.submits(connection, ["rw-1"], ["backfill"])
    return step_lease.seen(made).get(("rw-1", "backfill"), "")


def test_a_submit_that_ended_leaves_nothing_to_settle(installation: Settings) -> None:
    first = step_lease.take(installation, CLAIM, unasked)
    step_lease.release(installation, first)
    second = step_lease.take(installation, CLAIM, unasked)
    assert (first.token, second.token, second.how) == (1, 2, STARTED)
    assert seen(installation) == ""


def test_a_driver_that_outlived_its_task_is_ended_before_the_next_starts(
    installation: Settings, spawn: Callable
) -> None:
    left(installation)
    driver = spawn(**{step_lease.VARIABLE: step_lease.mark(installation, CLAIM.owner)})
    assert seen(installation) == "orphan driver"
    next_one = step_lease.take(installation, CLAIM, unasked)
    assert driver.wait(5) == -9
    assert (next_one.token, next_one.how) == (2, REPLACED)
    assert seen(installation) == "replaced"


def test_a_task_that_is_taken_for_dead_is_ended_too(installation: Settings, spawn: Callable) -> None:
    task = spawn()
    left(installation)
    made = leases.process_of(task.pid)
    assert made is not None
    with writing(installation.registry_url) as connection:
        leases.note(connection, CLAIM.owner, 1, replace(held_by(connection), processes=(made,)))
    assert step_lease.take(installation, CLAIM, unasked).how == REPLACED
    assert task.wait(5) == -9


def held_by(connection: object) -> Holder:
    found = leases.read(connection, CLAIM.owner)
    assert found is not None
    assert found.holder is not None
    return found.holder


def test_what_another_run_drives_is_left_alone(installation: Settings, spawn: Callable) -> None:
    task = spawn()
    left(installation)
    made = leases.process_of(task.pid)
    assert made is not None
    with writing(installation.registry_url) as connection:
        leases.note(connection, CLAIM.owner, 1, replace(held_by(connection), processes=(made,)))
    with pytest.raises(LeaseHeldError, match=r"rw-1\.backfill is driven by rewind_visits/r1/backfill"):
        step_lease.take(installation, OTHER, unasked)
    with pytest.raises(LeaseHeldError, match="mark that task as failed, or wait for its end"):
        step_lease.refuse_living(installation, "rw-1", unasked)
    assert task.poll() is None


def test_a_submit_on_another_host_may_live(installation: Settings) -> None:
    left(installation, host="elsewhere")
    with pytest.raises(LeaseHeldError, match="submitted on host elsewhere"):
        step_lease.take(installation, CLAIM, unasked)


def test_a_driver_that_does_not_end_lets_nothing_start(
    installation: Settings, spawn: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(installation)
    driver = spawn(**{step_lease.VARIABLE: step_lease.mark(installation, CLAIM.owner)})
    monkeypatch.setattr(processes, "send", lambda *_: None)
    monkeypatch.setattr(processes, "TERM_SECONDS", 0)
    monkeypatch.setattr(processes, "KILL_SECONDS", 0)
    with pytest.raises(LeaseHeldError, match=rf"orphan driver, processes \[{driver.pid}\] do not end"):
        step_lease.take(installation, CLAIM, unasked)


@pytest.mark.parametrize("state", sorted(step_lease.ENDED))
def test_the_end_of_a_driver_in_the_cluster_frees_its_lease(installation: Settings, state: str) -> None:
    left(installation, driver="driver-1", orphan=True)
    assert step_lease.take(installation, CLAIM, lambda _: state).how == STARTED


@pytest.mark.parametrize("state", ["RUNNING", "SUBMITTED", "RELAUNCHING", "UNKNOWN"])
def test_a_driver_in_the_cluster_is_followed_further(installation: Settings, state: str) -> None:
    left(installation, driver="driver-1")
    assert seen(installation) == "orphan driver driver-1"
    found = step_lease.take(installation, CLAIM, lambda _: state)
    assert (found.token, found.how, found.holder.driver) == (2, REATTACHED, "driver-1")
    assert seen(installation) == "re-attached"
    # What another run asked for may be something else.
    with writing(installation.registry_url) as connection:
        leases.note(connection, found.owner, found.token, replace(found.holder, processes=()))
    with pytest.raises(RefusedError, match="orphan driver driver-1 of rewind_visits/r1/backfill is"):
        step_lease.take(installation, OTHER, lambda _: state)


@pytest.mark.parametrize("state", ["RUNNING", "RELAUNCHING", "UNKNOWN", None])
def test_an_orphan_refuses_the_next_start_and_the_abort(installation: Settings, state: str | None) -> None:
    step_lease.orphan(installation, left(installation, driver="driver-1"))
    for refused in (
        lambda: step_lease.take(installation, CLAIM, lambda _: state),
        lambda: step_lease.refuse_living(installation, "rw-1", lambda _: state),
    ):
        with pytest.raises(RefusedError, match=r"^rw-1\.backfill: orphan driver driver-1 .*End it in the cluster"):
            refused()
    assert seen(installation) == "orphan driver driver-1"


def test_a_cluster_that_does_not_answer_is_asked_again(installation: Settings) -> None:
    left(installation, driver="driver-1")
    with pytest.raises(LeaseHeldError, match="does not say what became of driver driver-1"):
        step_lease.take(installation, CLAIM, lambda _: None)


def test_a_lease_stays_while_a_process_of_its_submit_lives(installation: Settings, spawn: Callable) -> None:
    made = step_lease.take(installation, CLAIM, unasked)
    driver = spawn(**{step_lease.VARIABLE: made.holder.mark})
    step_lease.release(installation, made)
    assert held(installation) == made.holder
    driver.kill()
    wait_for("the driver's end", lambda: driver.poll() is not None)
    step_lease.release(installation, made)
    assert held(installation) is None


def test_a_late_attempt_neither_ends_nor_frees_the_newer_ones_driver(installation: Settings) -> None:
    late = left(installation, driver="driver-1")
    newer = step_lease.take(installation, CLAIM, lambda _: "RUNNING")
    with pytest.raises(LeaseLostError):
        step_lease.orphan(installation, late)
    step_lease.release(installation, late)
    assert held(installation) == newer.holder


def test_two_installations_of_one_host_do_not_see_each_other(installation: Settings, spawn: Callable) -> None:
    other = replace(installation, home=Path("/elsewhere"))
    spawn(**{step_lease.VARIABLE: step_lease.mark(other, CLAIM.owner)})
    left(installation)
    assert step_lease.take(installation, CLAIM, unasked).how == STARTED


def test_what_a_later_release_wrote_of_a_holder_is_read_all_the_same(installation: Settings) -> None:
    made = left(installation)
    with writing(installation.registry_url) as connection:
        row = {"host": made.holder.host, "boot": made.holder.boot, "processes": [], "group": 1, "unheard_of": 1}
        connection.execute(leases._table.update().values(holder=row))
        found = leases.read(connection, CLAIM.owner)
    assert found is not None
    assert found.holder == Holder(made.holder.host, made.holder.boot, (), 1)


def test_how_a_driver_began_stands_in_the_register(installation: Settings) -> None:
    left(installation, driver="driver-1")
    step_lease.take(installation, CLAIM, lambda _: "RUNNING")
    with writing(installation.registry_url) as connection:
        assert rewinds.fact(connection, "rw-1", "driver.backfill.2") == REATTACHED
