"""What the issue `quick` asks to be shown of the demo and the local stack, at full length."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from rewind.local import stack
from rewind.local.stack import Stack
from tests.scenarios import quick_stack
from tests.scenarios.quick_stack import Demo
from tests.support.workshop import wait_for

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(7_200)]

Figure = Callable[[str, object], None]
SEED = int(os.environ.get("SEED", "7"))
REST_SECONDS, REST_PERCENT = 300, 20
SETTLE_SECONDS = 60
FOLDER_SECONDS = 30
DEMO_SECONDS = 300
STUCK_SECONDS = 180
BUSY = 6
TELLS_WITHIN = 10
MOMENTS = {
    "while it catches up": "history produced in",
    "in the dry run": "live killed and back in",
    "before the backfill": "plan done after",
    "in the backfill": "backfill running",
    "while the candidate catches up": "start_candidate done after",
    "in the comparison": "validate running",
    "after the switch": "cut_over done after",
    "while it is collected": "observe done after",
}
"""Lines of the demo after which live's driver is stopped; which of them is drawn."""


def chosen(jars: Path) -> dict[str, str]:
    return {"REWIND_JARS": str(jars)}


@pytest.fixture
def demo(project: Path, tmp_path: Path, jars: Path) -> Iterator[Callable[..., Demo]]:
    """Start the demo in a home of the test's own: `demo()`."""
    made: list[Demo] = []

    def start(*arguments: str) -> Demo:
        made.append(Demo(project, tmp_path / "home", chosen(jars), *arguments))
        return made[-1]

    yield start
    for one in made:
        one.clear()


def after(demo: Demo, line: str) -> None:
    """Wait until the demo has said a line; one that ends before fails."""

    def said() -> bool:
        assert demo.process.poll() is None, demo.lines[-20:]
        return any(line in one for one in demo.lines)

    wait_for(line, said, 3_600)


def pauses(demo: Demo) -> float:
    """Return the longest time for which the demo said nothing."""
    return max((later - earlier for earlier, later in zip(demo.said_at, demo.said_at[1:], strict=False)), default=0.0)


def test_show_4_beside_busy_processes_it_passes(demo: Callable[..., Demo], figure: Figure) -> None:
    with quick_stack.busy(BUSY):
        running = demo()
        code, last, seconds = running.ended()
    figure("busy_demo_seconds", round(seconds))
    figure("busy_demo_longest_silence", round(pauses(running), 1))
    assert (code, last.split(" ")[2]) == (0, "PASS"), running.lines[-40:]
    # A line is late by what the machine is: six processes leave the demo a quarter of a core.
    assert pauses(running) <= 2 * TELLS_WITHIN


def test_show_4_it_fails_soon_and_names_a_driver_that_was_stopped(demo: Callable[..., Demo], figure: Figure) -> None:
    moment = random.Random(SEED).choice(sorted(MOMENTS))
    running = demo()
    after(running, MOMENTS[moment])
    job_id, pids = running.stop_live_driver()
    at = running.elapsed()
    code, last, seconds = running.ended()
    figure("stopped", moment)
    figure("fails_after_seconds", round(seconds - at, 1))
    told = re.search(r"REWIND DEMO: FAIL driver of (\S+), pid (\d+), is stopped \(state T\)", last)
    assert told is not None, running.lines[-40:]
    assert (code, told[1], int(told[2]) in pids) == (1, job_id, True)
    assert f"/logs/streams/{job_id}/driver." in last
    assert f"Continue it: kill -CONT {' '.join(map(str, pids))}" in last
    assert seconds - at <= STUCK_SECONDS


def test_show_5_the_demo_on_idle_cores(demo: Callable[..., Demo], figure: Figure) -> None:
    figure("load_before", os.getloadavg()[0])
    running = demo()
    code, last, seconds = running.ended()
    figure("demo_seconds", round(seconds))
    for line in running.lines:
        if part := re.fullmatch(r"(.+) in ([\d.]+) s(:.*)?", line):
            figure(f"demo_{part[1].replace(' ', '_')}", float(part[2]))
    assert (code, last.split(" ")[2]) == (0, "PASS"), running.lines[-40:]
    assert pauses(running) <= TELLS_WITHIN
    assert seconds <= DEMO_SECONDS


@pytest.fixture
def at_rest(project: Path, tmp_path: Path, jars: Path) -> Iterator[Stack]:
    """A new stack over a copy of the five sample folders, nothing deployed."""
    folder = tmp_path / "pipelines"
    shutil.copytree(project / "include" / "pipelines", folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment: Mapping[str, str] = {**chosen(jars), "PATH": os.environ["PATH"], "REWIND_PIPELINES": str(folder)}
    yield stack.up(tmp_path / "home", environment=environment)
    stack.down(tmp_path / "home")


def test_show_5_the_stack_at_rest(at_rest: Stack, tmp_path: Path, figure: Figure) -> None:
    quick_stack.rest(SETTLE_SECONDS)
    figure("load_before", os.getloadavg()[0])
    shares = quick_stack.shares(tmp_path / "home", REST_SECONDS)
    for name, percent in shares.items():
        figure(f"percent_{name}", percent)
    figure("percent_in_all", round(sum(shares.values()), 2))
    runs = at_rest.api().dag_runs("~")
    assert {run["dag_id"] for run in runs} <= {"watch_streams"}, "what is scheduled waits for its next tick"
    known = {dag["dag_id"] for dag in at_rest.api().dags()}
    seconds = quick_stack.seconds_until_dags(at_rest, tmp_path / "pipelines", "visits_converter", "newcomers")
    figure("new_folder_seconds", seconds)
    assert len(known) == 5 * 7 + 1 + 4
    assert sum(shares.values()) <= REST_PERCENT
    assert seconds <= FOLDER_SECONDS
