"""A host of its own on this machine: names, processes and boot of a namespace, told what to do line by line.

`Host` runs `agent` in it, which looks at a stream as a supervisor does and as a view does. Drivers that it launches
are `driver`: they hold the lease as a stream's driver does, and write where all can see it. Times are the product's,
divided by `FASTER`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import update

from rewind.core import lifecycle
from rewind.core.errors import LeaseHeldError, LeaseLostError, RetryError
from rewind.core.settings import Settings, from_environment
from rewind.registry import leases, schema, streams
from rewind.registry.database import now, writing
from rewind.runtime.drivers import guard, submit, supervise
from rewind.runtime.drivers.driver_state import Drivers

MODULE = "tests.support.host_agent"
OWNER = "visits_converter-g1"
FASTER = 20
ENTER = ("unshare", "--pid", "--uts", "--mount", "--fork", "--mount-proc", "--kill-child")
PROJECT = Path(__file__).resolve().parents[2]


class Host:
    """A host, up from the moment that it is made until it `vanishes`."""

    def __init__(self, name: str, boot: str, folder: Path, settings: Settings) -> None:
        self.name, self._cut = name, folder / f"{name}.cut"
        boot_id = folder / f"{name}.boot"
        boot_id.write_text(f"{boot}\n")
        enter = f'hostname {name} && mount --bind {boot_id} /proc/sys/kernel/random/boot_id && exec "$@"'
        # A disk of its own: a lock on a file holds off nobody on another host.
        own = replace(settings, home=folder / name)
        own.home.mkdir(exist_ok=True)
        given = ("agent", json.dumps(own.environment()), str(folder), name)
        self._process = subprocess.Popen(
            [*ENTER, "sh", "-c", enter, "sh", sys.executable, "-m", MODULE, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": f"{PROJECT}:{PROJECT / 'include'}"},
        )

    def asks(self, what: str) -> Any:
        """Have the agent do something, and return what it says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{self.name} has ended"
        return json.loads(answer)

    def cut(self, *, off: bool) -> None:
        """Take the registry from the drivers of this host, or give it back."""
        if off:
            self._cut.touch()
        else:
            self._cut.unlink(missing_ok=True)

    def vanish(self) -> None:
        """Lose the host with all of its processes."""
        self._process.kill()
        self._process.wait()


@dataclass
class Agent:
    """What runs on a host."""

    settings: Settings

    def look(self) -> dict[str, Any]:
        """Look as a supervisor does, whatever it said of when to try again."""
        with writing(self.settings.registry_url) as connection:
            connection.execute(update(schema.streams).values(next_start_at=None, failures=0, quarantined_at=None))
        told = supervise.look(self.settings, OWNER)
        with writing(self.settings.registry_url) as connection:
            failed = streams.needed(connection, OWNER).failures > 0
        return {"state": told.state, "failed": failed, "started": "started driver" in told.message}

    def view(self) -> str:
        """Say what the page shows of the driver."""
        with writing(self.settings.registry_url) as connection:
            return Drivers(connection, [OWNER], now()).of(OWNER, lifecycle.LIVE).state

    def signal(self, number: int) -> list[int]:
        """Send a signal to the drivers of this host and their parents, and return the groups that had it."""
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if b"\0driver\0" in _command(path)]
        groups = sorted({os.getpgid(pid) for pid in pids})
        for group in groups:
            os.killpg(group, number)
        deadline = time.monotonic() + 10
        while number == signal.SIGKILL and any(leases.process_of(pid) for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return groups


def agent(settings: Settings, folder: Path, name: str) -> None:
    """Do what is asked, a line each."""
    hasten()
    # The first process of a namespace is who its orphans come to.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # As spark-submit's JVM is, its parent is another process of its session.
    parent = ("sh", "-c", '"$@"; :', "sh")
    command = [*parent, sys.executable, "-m", MODULE, "driver", json.dumps(settings.environment()), str(folder), name]
    changed: tuple[tuple[Any, str, Any], ...] = (
        (supervise, "submit_of", lambda *_: None),
        (submit, "command", lambda _: command),
        (submit, "environment", lambda _: dict(os.environ)),
    )
    for module, function, instead in changed:
        setattr(module, function, instead)
    made = Agent(settings)
    for line in sys.stdin:
        what, *given = line.split()
        answer: Any = getattr(made, what)(*map(int, given))
        print(json.dumps(answer), flush=True)


def driver(settings: Settings, folder: Path, name: str) -> None:
    """Hold the lease and write every few milliseconds, as a stream does with each batch."""
    hasten()
    reaches = writing

    def cut_off(*given: Any) -> Any:
        if (folder / f"{name}.cut").exists():
            raise RetryError("the registry is away")
        return reaches(*given)

    vars(guard)["writing"] = cut_off
    try:
        with guard.Guard(settings, OWNER) as held, (folder / "writes").open("a", buffering=1) as writes:
            ends: list[int] = []
            signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
            while not ends:
                held.check()
                writes.write(f"{time.monotonic()} {held.token} {name} {os.getpid()}\n")
                time.sleep(0.02)
    except (LeaseHeldError, LeaseLostError, RetryError) as lost:
        sys.exit(f"{type(lost).__name__}: {lost}")


def hasten() -> None:
    """Let time pass faster."""
    leases.SILENCE /= FASTER
    streams.START = timedelta(minutes=5) / FASTER
    guard.RENEW_SECONDS /= FASTER
    guard.REGISTRY_AWAY_SECONDS /= FASTER


def _command(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


if __name__ == "__main__":
    {"agent": agent, "driver": driver}[sys.argv[1]](
        from_environment(json.loads(sys.argv[2])), Path(sys.argv[3]), sys.argv[4]
    )
