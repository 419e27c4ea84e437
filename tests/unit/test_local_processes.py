from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rewind.core.errors import RewindError
from rewind.local import processes, readiness
from rewind.local.processes import Command, Process
from rewind.local.voice import SILENT
from rewind.local.waiting import Waiting

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"
# A child in a process group of its own, as Airflow's task runners are, which outlives its parent.
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], process_group=0)"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Command]:
    def make(code: str, name: str = "worker", **environment: str) -> Command:
        return Command(name, [sys.executable, "-c", code], environment, tmp_path / f"{name}.log", tmp_path)

    return make


@pytest.fixture
def started() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    processes.kill(running)


def test_a_running_process_is_left_alone(
    command: Callable[..., Command], tmp_path: Path, started: list[Process]
) -> None:
    first, second = (processes.ensure([command(SLEEP)], tmp_path)[0] for _ in range(2))
    started.append(first)

    assert second == first
    assert first.alive


def test_a_dead_process_is_started_anew(
    command: Callable[..., Command], tmp_path: Path, started: list[Process]
) -> None:
    first = processes.ensure([command(SLEEP)], tmp_path)[0]
    os.kill(first.pid, signal.SIGKILL)
    processes.kill([first])
    second = processes.ensure([command(SLEEP)], tmp_path)[0]
    started.append(second)

    assert not first.alive
    assert second.alive
    assert processes.load("worker", tmp_path) == second


def test_a_process_with_other_settings_is_restarted(
    command: Callable[..., Command], tmp_path: Path, started: list[Process]
) -> None:
    first = processes.ensure([command(SLEEP, REWIND_PIPELINES="a")], tmp_path)[0]
    second = processes.ensure([command(SLEEP, REWIND_PIPELINES="b")], tmp_path)[0]
    started.append(second)

    assert not first.alive
    assert second.alive


def test_a_changed_configuration_file_changes_the_fingerprint(command: Callable[..., Command], tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("a")
    asked = replace(command(SLEEP), reads=[file])
    before = asked.fingerprint
    file.write_text("b")

    assert asked.fingerprint != before


def test_a_pid_of_someone_else_is_neither_alive_nor_stopped(
    command: Callable[..., Command], started: list[Process]
) -> None:
    stranger = processes.start(command(SLEEP))
    started.append(stranger)
    recycled = replace(stranger, started=stranger.started - 1)

    processes.stop([recycled], patience=0)

    assert not recycled.alive
    assert stranger.alive


def test_what_does_not_listen_is_killed_after_the_patience(command: Callable[..., Command]) -> None:
    deaf = processes.start(command(STUBBORN))
    readiness.wait_for(lambda: "deaf" in Path(deaf.log).read_text(), "the handler", deaf)

    processes.stop([deaf], patience=0.2)

    assert not deaf.alive


def test_orphans_of_a_dead_parent_are_stopped_too(command: Callable[..., Command]) -> None:
    parent = processes.start(command(PARENT))
    os.waitpid(parent.pid, 0)
    orphans = parent.members()

    processes.stop([parent], patience=5)

    assert len(orphans) == 1
    assert parent.members() == []


def test_a_process_that_dies_at_its_start_is_quoted(command: Callable[..., Command]) -> None:
    dying = processes.start(command("import sys; sys.exit('no such luck')"))

    with pytest.raises(RewindError, match=r"^worker died while an answer was awaited\.\n") as raised:
        readiness.wait_for(lambda: False, "an answer", dying)

    assert "no such luck" in str(raised.value)
    assert dying.log in str(raised.value)


def test_waiting_ends_when_the_process_does_nothing(
    command: Callable[..., Command], started: list[Process], tmp_path: Path
) -> None:
    started.append(processes.start(command(SLEEP)))
    waits = Waiting(SILENT, still=0.3)

    with pytest.raises(
        RewindError, match=rf"^worker, pid {started[0].pid}, lives\. Waited for an answer: nothing has "
    ):
        readiness.wait_for(lambda: False, "an answer", started[0], waits)


def test_a_program_is_run_to_its_end_with_what_it_said() -> None:
    said = readiness.run([sys.executable, "-c", "import sys; print('a', flush=True); sys.exit('b')"], os.environ, "it")

    assert said == (1, "a\nb\n")


def test_a_program_that_stands_still_is_ended_and_named() -> None:
    with pytest.raises(
        RewindError, match=r"^the migration, pid \d+, lives\. Waited for the migration: nothing has moved"
    ):
        readiness.run([sys.executable, "-c", SLEEP], os.environ, "the migration", Waiting(SILENT, still=0.3))


def test_the_record_holds_no_environment(
    command: Callable[..., Command], tmp_path: Path, started: list[Process]
) -> None:
    started += processes.ensure([command(SLEEP, SECRET="hidden")], tmp_path)

    assert "hidden" not in (tmp_path / "worker.json").read_text()
    assert json.loads((tmp_path / "worker.json").read_text())["pid"] == started[0].pid
