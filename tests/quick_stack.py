"""What the acceptance of the stack and the demo needs: busy processes, CPU shares, and a demo that is watched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from rewind.control import leases, pointer
from rewind.control.leases import Holder
from rewind.control.snapshot import snapshot
from rewind.core.errors import RewindError
from rewind.local import stack

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


class Demo:
    """`rewind demo` in a home of its own, as a terminal-less caller runs it."""

    def __init__(self, project: Path, home: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self.home, self.log = home, home / "demo.out"
        home.mkdir(parents=True, exist_ok=True)
        self.begun = time.monotonic()
        own = {"PYTHONPATH": str(project / "include"), "REWIND_HOME": str(home), **environment}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rewind", "demo", *arguments],
                cwd=project,
                env={**os.environ, **own},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        """What it has said so far."""
        return self.log.read_text(errors="replace").splitlines()

    def ended(self) -> tuple[int, str, float]:
        """Wait for its end; return exit code, last line, and seconds since it was started."""
        code = self.process.wait()
        return code, self.lines[-1], time.monotonic() - self.begun

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
        """Stop the live job's driver with SIGSTOP, its JVM too; return the job and the pids."""
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
