"""What the acceptance of the stack and the demo needs: busy processes, CPU shares, and a demo that is watched."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from rewind.core.errors import RewindError
from rewind.local import stack
from rewind.local.stack import Stack
from rewind.registry import leases
from rewind.registry.leases import Holder
from rewind.registry.snapshot import snapshot
from rewind.views import pointer
from tests.support.workshop import wait_for

BURN = "while True: pass"


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes busy beside what runs."""
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def shares(home: Path, seconds: float) -> dict[str, float]:
    """Return the percent of a core that each process of a stack took over so many seconds, its descendants included."""
    before, begun = _used(home), time.monotonic()
    time.sleep(seconds)
    after, elapsed = _used(home), time.monotonic() - begun
    return {name: round(100 * (after[name] - before[name]) / elapsed, 2) for name in after}


def _used(home: Path) -> dict[str, float]:
    return {member.name: _cpu_of(member.pid) for member in stack.status(home) if member.pid}


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants; of those that have ended, as their parents hold them."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def rest(seconds: float) -> None:
    """Let a stack come to rest: after its start it parses, and makes up for nothing else."""
    time.sleep(seconds)


def seconds_until_dags(running: Stack, pipelines: Path, like: str, name: str) -> float:
    """Add a pipeline's folder like another one and return after how many seconds all its DAGs are there."""
    kinds = ("rewind", "rollback", "consumers", "abort", "deploy", "stream", "nightly_replay")
    wanted, begun = {f"{kind}_{name}" for kind in kinds}, time.monotonic()
    shutil.copytree(pipelines / like, pipelines / name)
    wait_for(f"the DAGs of {name}", lambda: wanted <= {dag["dag_id"] for dag in running.api().dags()}, 300)
    return round(time.monotonic() - begun, 1)


class Demo:
    """`rewind demo` in a home of its own, as a terminal-less caller runs it."""

    def __init__(self, project: Path, home: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self.home, self.log = home, home / "demo.out"
        home.mkdir(parents=True, exist_ok=True)
        self.begun = time.monotonic()
        self.said_at: list[float] = [0.0]
        own = {"PYTHONPATH": str(project / "include"), "REWIND_HOME": str(home), **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rewind", "demo", *arguments],
            cwd=project,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Take down what it says, with the time of each line."""
        assert self.process.stdout is not None
        with self.log.open("wb", buffering=0) as log:
            for line in self.process.stdout:
                log.write(line)
                self.lines.append(line.decode(errors="replace").rstrip())
                self.said_at.append(self.elapsed())

    def elapsed(self) -> float:
        """Return the seconds since it was started."""
        return time.monotonic() - self.begun

    def ended(self) -> tuple[int, str, float]:
        """Wait for its end; return exit code, last line, and the seconds that it took."""
        code = self.process.wait()
        seconds = self.elapsed()
        self._reader.join()
        return code, self.lines[-1], seconds

    def live_driver(self) -> tuple[str, Holder] | None:
        """Return the job that is live and who drives it, once there is a driver."""
        known = stack.environment(self.home)
        if not known:
            return None
        url = known["REWIND_REGISTRY_URL"]
        try:
            found = pointer.resolve("visits_converter", url)
            with snapshot(url) as connection:
                lease = leases.read(connection, found.job_id)
        except RewindError:
            return None
        alive = lease is not None and lease.holder is not None and leases.alive(lease.holder)
        return (found.job_id, lease.holder) if lease and lease.holder and alive else None

    def stop_live_driver(self) -> tuple[str, list[int]]:
        """Stop the live job's driver with SIGSTOP, its JVM too, once there is one; return the job and the pids."""
        wait_for("the live job's driver", lambda: self.live_driver() is not None, 1_200)
        found = self.live_driver()
        assert found is not None
        job_id, holder = found
        pids = [process.pid for process in holder.processes]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return job_id, pids

    def clear(self) -> None:
        """End it and its stack, whatever is stopped."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for process in psutil.process_iter(["status", "cmdline"]):
            if process.info["status"] == psutil.STATUS_STOPPED and str(self.home) in " ".join(process.info["cmdline"]):
                process.kill()
        stack.down(self.home)
