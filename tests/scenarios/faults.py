"""What befalls machines while a step runs: the step survives or is refused clearly, live goes on, nothing is lost."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rewind.core.errors import RetryError, RewindError
from rewind.core.offsets import reached
from rewind.registry import generations, rewinds
from rewind.registry.database import now
from tests.scenarios.soak import Soak
from tests.support import preload
from tests.support.workshop import Ended, wait_for

CLOCK_SHIFT = Path(__file__).with_name("clock_shift.c")
DISK = "300m"
HISTORY = 200
"""Records that are mirrored before the first rewind."""
DOWN_SECONDS, AWAY_SECONDS = 15, 60
STEPS = ("backfill", "cut_over")
TYPED = {error.exit_code for error in RewindError.__subclasses__()} | {RetryError.exit_code}


@dataclass(frozen=True)
class Seen:
    """How a step took a fault.

    Attributes:
        outcome: `survived`, or the last line of a refusal.
        gap_seconds: For how long at most live wrote nothing, while records came all the time.
    """

    outcome: str
    gap_seconds: float


class Troubles:
    """One pipeline under a light load that is rewound once a fault; the steps in question run into it."""

    def __init__(self, life: Soak) -> None:
        """Keep the life, once some of the records that come are mirrored."""
        self.life = life
        self.shop = life.shop
        self.rewinds = 0
        wait_for("some history", lambda: sum(self.shop.position(self.shop.mirror).values()) >= HISTORY)

    def through(self, fault: Callable[[Soak], AbstractContextManager[Mapping[str, str]]]) -> dict[str, Seen]:
        """Rewind once, with the fault in each of `STEPS`, and collect what was left behind."""
        self.rewinds += 1
        of = ("--rewind-id", f"rw-80000000{self.rewinds:02}")
        asked = '{"dry_run": false, "same_code": true}'
        self.life.step("plan", *of, "--pipeline", self.shop.pipeline, "--request", asked)
        self.life.step("spin_up", *of)
        seen = {"backfill": self.into(fault, "backfill", of)}
        with self.shop.registry() as connection:
            rewind, plan = rewinds.read_active(connection, of[1])
        self.shop.wish(rewind.job_id)
        end = self.shop.end()
        wait_for("the candidate", lambda: reached(self.shop.position(rewind.job_id), end))
        self.life.step("validate", *of)
        self.shop.approve(of[1])
        seen["cut_over"] = self.into(fault, "cut_over", of)
        self._end(of[1], plan.live_job_id)
        return seen

    def into(
        self, fault: Callable[[Soak], AbstractContextManager[Mapping[str, str]]], step: str, of: tuple[str, str]
    ) -> Seen:
        """Run a step into a fault, lift it, and run the step again until it is done."""
        begun = now()
        with self.shop.registry() as connection:
            found = generations.live(connection, self.shop.pipeline)
        assert found is not None
        live = found[0].job_id
        with ThreadPoolExecutor(1) as pool:
            if fault in OF_THE_STEP:
                with fault(self.life) as environment:
                    ended = self.shop.submit(step, *of, environment=environment)
            else:
                running = pool.submit(self.shop.submit, step, *of)
                wait_for(f"{step} begun", lambda: running.done() or self._begun(of[1], step))
                with fault(self.life):
                    ended = running.result()
        outcome = _outcome(step, ended)
        self.life.step(step, *of)
        at = self.shop.position(live)
        wait_for(f"{live} going on", lambda: sum(self.shop.position(live).values()) > sum(at.values()))
        return Seen(outcome, self.shop.longest_gap(live, begun))

    def _begun(self, rewind_id: str, step: str) -> bool:
        with self.shop.registry() as connection:
            return rewinds.last_attempt(connection, rewind_id, step) > 0

    def _end(self, rewind_id: str, old: str) -> None:
        """End the observation and the grace, so that no more than live and the next candidate run."""
        with self.shop.registry() as connection:
            rewinds.close(connection, rewind_id, "finished")
            generations.set_grace(connection, old, now())
        self.life.step("collect_garbage")


def _outcome(step: str, ended: Ended) -> str:
    if ended.code == 0:
        return "survived"
    assert ended.code in TYPED, f"{step} ended by {ended.code}: {ended.output[-3_000:]}"
    lines = [line for line in ended.output.splitlines() if " ERROR [" in line]
    return f"refused: {lines[-1].partition('] ')[2][:300]}"


@contextmanager
def broker_bounced(life: Soak) -> Iterator[Mapping[str, str]]:
    """The broker dies and is back as soon as it starts."""
    life.bounce()
    yield {}


@contextmanager
def broker_down(life: Soak) -> Iterator[Mapping[str, str]]:
    """The broker is away for a while."""
    life.ground.kill_broker()
    # How long it lasts is the fault, and nothing is waited for by it.
    threading.Event().wait(DOWN_SECONDS)
    life.ground.start_broker()
    yield {}


@contextmanager
def registry_away(life: Soak) -> Iterator[Mapping[str, str]]:
    """Somebody holds the registry for a minute."""
    file = life.shop.settings.registry_url.removeprefix("sqlite:///")
    held = sqlite3.connect(file, timeout=30, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    threading.Event().wait(AWAY_SECONDS)
    held.execute("ROLLBACK")
    held.close()
    yield {}


@contextmanager
def disk_full(life: Soak) -> Iterator[Mapping[str, str]]:
    """Nothing more can be written to the disk of registry, checkpoints and mirror."""
    filler = life.shop.settings.home / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65_536)
        except OSError:
            pass
    try:
        yield {}
    finally:
        filler.unlink()


@contextmanager
def clock_ahead(life: Soak) -> Iterator[Mapping[str, str]]:
    """The step's machine is an hour ahead of all others."""
    yield _shifted(life, 3_600)


@contextmanager
def clock_behind(life: Soak) -> Iterator[Mapping[str, str]]:
    """The step's machine is an hour behind all others."""
    yield _shifted(life, -3_600)


def _shifted(life: Soak, seconds: int) -> Mapping[str, str]:
    # libfaketime bends timed waits too: of JVMs, which then spin, and Python's sleep, which then fails.
    library = preload.compiled(CLOCK_SHIFT, life.ground.home)
    return {"LD_PRELOAD": str(library), "CLOCK_SHIFT_SECONDS": str(seconds)}


OF_THE_STEP = (clock_ahead, clock_behind)
"""Faults of the step's own process, the others are of what it works with."""
FAULTS = (broker_bounced, broker_down, registry_away, disk_full, clock_ahead, clock_behind)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Yield a folder on a disk of its own that is soon full."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert mounted.returncode == 0, f"a full disk needs a small one, and the right to mount it: {mounted.stderr}"
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)
