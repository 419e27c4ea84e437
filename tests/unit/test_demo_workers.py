"""The processes that the demo rests on: who they are, where they write, and which of them belong to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from examples.demo import workers
from rewind.core.settings import Settings
from rewind.local import processes
from rewind.local.processes import Command
from rewind.registry import leases, streams
from rewind.registry.database import writing
from rewind.registry.leases import Holder
from rewind.runtime.drivers import step_lease
from tests.support.fakes import installation

SLEEP = "import time; time.sleep(600)"
JOB, MIRROR = "visits_converter-g1", "mirror-visits"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return installation(tmp_path)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def make(**environment: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, **environment}))
        return started[-1]

    yield make
    for process in started:
        process.kill()
        process.wait()


def known(pid: int) -> leases.Process:
    found = leases.process_of(pid)
    assert found is not None
    return found


def drivers(settings: Settings, belongs: Callable[[str], bool] = lambda _: True) -> dict[str, tuple[int, ...]]:
    return {one.name: one.pids for one in workers.drivers(settings, belongs)}


def test_a_driver_is_who_holds_the_lease_else_who_was_started_else_gone(
    settings: Settings, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    python, jvm, launched = start(), start(), start()
    with writing(settings.registry_url) as connection:
        streams.wish(connection, JOB, streams.GENERATION, streams.RUN)
        streams.wish(connection, MIRROR, streams.MIRROR, streams.RUN)
        streams.set_launched(connection, JOB, asdict(known(launched.pid)))
    assert drivers(settings) == {f"driver of {JOB}": (launched.pid,), f"driver of {MIRROR}": ()}

    here = leases.this_driver()
    held = Holder(here.host, here.boot, (known(python.pid), known(jvm.pid)), python.pid)
    with writing(settings.registry_url) as connection:
        leases.take(connection, JOB, held)
    assert drivers(settings, lambda owner: owner == JOB) == {f"driver of {JOB}": (python.pid, jvm.pid)}

    for process in (python, jvm, launched):
        process.kill()
        process.wait()
    assert drivers(settings) == {f"driver of {JOB}": (), f"driver of {MIRROR}": ()}


def test_a_driver_is_quoted_by_what_was_written_last(settings: Settings) -> None:
    folder = settings.home / "logs" / "streams" / JOB
    folder.mkdir(parents=True)
    for name, text, at in (("driver.log", "slow", 10), ("driver.1.out", "no luck", 20), ("driver.2.out", "", 30)):
        (folder / name).write_text(text)
        os.utime(folder / name, (at, at))
    with writing(settings.registry_url) as connection:
        streams.wish(connection, JOB, streams.GENERATION, streams.RUN)
    (found,) = workers.drivers(settings, lambda _: True)
    assert [log.name for log in found.logs] == ["driver.1.out", "driver.log"]


def test_a_registry_that_does_not_answer_shows_no_driver(settings: Settings) -> None:
    (settings.home / "registry.db").unlink()
    assert workers.drivers(settings, lambda _: True) == []


def test_submits_are_found_by_what_they_carry_with_the_log_of_their_newest_attempt(
    settings: Settings, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ours = start(**{step_lease.VARIABLE: step_lease.mark(settings, "rw-1.backfill")})
    start(**{step_lease.VARIABLE: "/another/home:rw-1.backfill"})
    logs = settings.home / "airflow" / "logs" / "dag_id=rewind_a" / "run_id=r1"
    for step, attempt, at in (("backfill", 1, 10), ("backfill", 2, 20), ("validate", 1, 30)):
        log = logs / f"task_id={step}" / f"attempt={attempt}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("said")
        os.utime(log, (at, at))
    found = workers.submits(settings)
    assert [(one.name, one.pids) for one in found] == [("submit rw-1.backfill", (ours.pid,))]
    assert [log.relative_to(logs) for log in found[0].logs] == [Path("task_id=backfill/attempt=2.log")]


def test_the_demo_rests_on_its_stack_its_producer_and_its_drivers(settings: Settings, tmp_path: Path) -> None:
    started = [
        processes.ensure([Command(name, [sys.executable, "-c", SLEEP], {}, tmp_path / "log", tmp_path)], folder)[0]
        for name, folder in (
            ("scheduler", settings.home / "stack"),
            ("producer", settings.home / "demo" / "processes"),
        )
    ]
    with writing(settings.registry_url) as connection:
        streams.wish(connection, JOB, streams.GENERATION, streams.RUN)
    listed = workers.all_of(settings, lambda _: True)
    processes.kill(started)
    # The scheduler starts drivers: one that is stopped must not be told as the scheduler's fault.
    assert [one.name for one in listed] == [f"driver of {JOB}", "producer", "scheduler"]
    found = {one.name: (one.pids, one.replaced) for one in listed}
    assert found == {
        "scheduler": ((started[0].pid,), False),
        "producer": ((started[1].pid,), True),
        f"driver of {JOB}": ((), True),
    }
    gone = {one.name: (one.pids, one.replaced) for one in workers.all_of(settings, lambda _: True)}
    assert gone == {"scheduler": ((), False), f"driver of {JOB}": ((), True)}
