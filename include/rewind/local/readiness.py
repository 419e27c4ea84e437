"""Wait until a process is ready, or has done what it was started for, for as long as it uses CPU time."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rewind.core.errors import RewindError
from rewind.local import processes
from rewind.local.processes import POLL_SECONDS, Process
from rewind.local.progress import Look
from rewind.local.voice import SILENT
from rewind.local.waiting import Waiting
from rewind.local.watched import Watched

WAITS = Waiting(SILENT)
"""Waits of somebody who listens to none."""


def wait_for(ready: Callable[[], bool], what: str, process: Process, waits: Waiting = WAITS) -> None:
    """Wait until `ready` says so, for as long as the process uses CPU time.

    Args:
        ready: Looks once.
        what: What should happen, as it goes on from "waiting for".
        process: The process that has to do it.
        waits: How to wait.

    Raises:
        RewindError: The process died or stood still meanwhile; with the last lines of its log.
    """

    def look() -> Look[bool]:
        if ready():
            return Look(True)
        if not process.alive:
            raise RewindError(
                f"{process.name} died while {what} was awaited.\n{processes.last_lines(Path(process.log))}"
            )
        return Look()

    waits.until(what, look, lambda: [process.watched], POLL_SECONDS)


def run(argv: Sequence[str], environment: Mapping[str, str], what: str, waits: Waiting = WAITS) -> tuple[int, str]:
    """Run a program to its end and return its exit code and what it printed.

    Args:
        argv: Program and arguments.
        environment: Its whole environment.
        what: What it does, as it goes on from "waiting for".
        waits: How to wait.

    Raises:
        StuckError: It stood still.
    """
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(list(argv), env=dict(environment), stdout=output, stderr=subprocess.STDOUT)
        try:
            ended: Callable[[], Look[bool]] = lambda: Look(child.poll() is not None or None)  # noqa: E731
            waits.until(what, ended, lambda: [Watched(what, (child.pid,))], POLL_SECONDS)
        finally:
            child.kill()
            code = child.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")
