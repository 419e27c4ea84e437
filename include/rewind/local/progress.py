"""Whether what is waited for still moves: a wait fails when nothing has moved for a while, however long it takes.

Time is passed in, in seconds of a clock that only goes forward (ADR 0030).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

STILL_SECONDS = 90.0
"""After so long without any movement a wait fails."""
CPU_SECONDS = 5.0
"""So much CPU time of those that work on it is a movement: less is what an idle process takes while it waits too."""

T = TypeVar("T")


@dataclass(frozen=True)
class Look(Generic[T]):
    """What one look at something that is waited for has found.

    Attributes:
        found: What was waited for; None while it is not there.
        far: How far it is, for people.
        marks: What is different once it has moved: positions, rows, states of tasks.
    """

    found: T | None = None
    far: str = ""
    marks: object = None


class Progress:
    """How one thing that is waited for gets on."""

    def __init__(self, at: float, still: float = STILL_SECONDS) -> None:
        """Begin to wait.

        Args:
            at: The instant.
            still: After so many seconds without a movement it stands still.
        """
        self._began = self._moved = at
        self._limit = still
        self._marks: object = None
        self._cpu: Mapping[Hashable, float] | None = None

    def note(self, marks: object, at: float) -> None:
        """Take note of what a look at an instant has found: it is different once something has moved."""
        if marks != self._marks:
            self._marks, self._moved, self._cpu = marks, at, None

    def note_cpu(self, cpu: Mapping[Hashable, float], at: float) -> None:
        """Take note of the CPU seconds so far of each process that works on it.

        Args:
            cpu: By process; one that is stopped or gone uses no more.
            at: The instant.
        """
        if self._cpu is None:
            self._cpu = dict(cpu)
        elif _used(self._cpu, cpu) >= CPU_SECONDS:
            self._cpu, self._moved = dict(cpu), at

    def waited(self, at: float) -> float:
        """Return the seconds since the wait began."""
        return at - self._began

    def still(self, at: float) -> float:
        """Return the seconds since the last movement."""
        return at - self._moved

    def stuck(self, at: float) -> bool:
        """Return whether nothing has moved for too long."""
        return self.still(at) >= self._limit


class Standstills:
    """Since when processes that everything rests on are not able to work, across all waits."""

    def __init__(self, still: float = STILL_SECONDS) -> None:
        """Keep after how many seconds a standstill is too long."""
        self._limit = still
        self._since: dict[str, float] = {}

    def note(self, names: Collection[str], at: float) -> list[str]:
        """Take note of who is not able to work at an instant, and return those for whom it has lasted too long."""
        self._since = {name: self._since.get(name, at) for name in names}
        return [name for name, since in self._since.items() if at - since >= self._limit]


def _used(before: Mapping[Hashable, float], now: Mapping[Hashable, float]) -> float:
    """Return the CPU seconds that were used between two looks; a process that came has used all of its own since."""
    return sum(max(0.0, seconds - before.get(process, 0.0)) for process, seconds in now.items())
