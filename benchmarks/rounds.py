"""Two things measured side by side: in one run, on the same data, in turn, the first round dropped."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WARM_UP = 1
"""Rounds that count for nothing: caches of the machine fill, and a service compiles its code."""


@dataclass(frozen=True)
class Spent:
    """What something took: seconds by the clock, and CPU seconds of its processes, those that it started included."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Ratio:
    """What one thing took as a multiple of another, over the rounds that count.

    Attributes:
        name: Which figure it is.
        value: Median of the rounds.
        least: Lowest of them.
        most: Highest of them.
        spent: Medians of both sides, by name.
    """

    name: str
    value: float
    least: float
    most: float
    spent: Mapping[str, Spent]


def interleaved(sides: Mapping[str, Callable[[], Spent]], rounds: int) -> dict[str, list[Spent]]:
    """Run all sides in turn, `rounds` times and once more before, and return what each took in those that count."""
    taken: dict[str, list[Spent]] = {name: [] for name in sides}
    for number in range(WARM_UP + rounds):
        for name, run in sides.items():
            spent = run()
            print(
                f"  {'warm up' if number < WARM_UP else f'round {number}':8} {name:24} {spent.wall:8.2f} s", flush=True
            )
            if number >= WARM_UP:
                taken[name].append(spent)
    return taken


def ratio(name: str, taken: Mapping[str, Sequence[Spent]], of: str, to: str, *, cpu: bool = False) -> Ratio:
    """Return what side `of` took as a multiple of what side `to` took in the same round."""
    pairs = zip(taken[of], taken[to], strict=True)
    each = [a.cpu / b.cpu if cpu else a.wall / b.wall for a, b in pairs]
    medians = {
        side: Spent(*map(statistics.median, zip(*((s.wall, s.cpu) for s in taken[side]), strict=True)))
        for side in (of, to)
    }
    return Ratio(name, statistics.median(each), min(each), max(each), medians)


def of_process(command: Sequence[str], environment: Mapping[str, str] | None = None, log: Path | None = None) -> Spent:
    """Run a process to its end and return what it took.

    Raises:
        RuntimeError: It failed.
    """
    begun = time.monotonic()
    with (log or Path(os.devnull)).open("w") as output:
        started = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(started.pid, 0)
    code = started.returncode = os.waitstatus_to_exitcode(status)
    if code:
        raise RuntimeError(f"{' '.join(command)[:200]} ended with {code}; see {log}")
    return Spent(time.monotonic() - begun, usage.ru_utime + usage.ru_stime)


def output_of(command: Sequence[str]) -> str:
    """Return what a process prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def of_call(call: Callable[[], object]) -> Spent:
    """Call something and return what it took in this process and the children that it waited for."""
    begun, before = time.monotonic(), os.times()
    call()
    after = os.times()
    return Spent(time.monotonic() - begun, sum(after[:4]) - sum(before[:4]))
