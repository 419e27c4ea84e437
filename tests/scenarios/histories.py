"""Histories of a shared output, drawn, and what it must hold: of every key the newest version that ever came.

A history is a sequence of steps, and a step what one merge brings: the next batch of the live job; batches that it had
missed; a step again, as after a crash, whole or in part; what a job that is no longer live still sends; or, after the
pointer moved forward or back, all that the job that became live has, with tombstones for what it lacks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rewind.core import coordinates
from rewind.registry.publications import Counts


@dataclass(frozen=True)
class Write:
    """One version of a key; without value a tombstone."""

    key: str
    version: str
    value: str | None


Step = Sequence[Write]


@dataclass
class Newest:
    """The oracle: what the output must hold, by key, and what each merge must count."""

    held: dict[str, Write] = field(default_factory=dict)

    def merge(self, step: Iterable[Write]) -> Counts:
        newest: dict[str, Write] = {}
        for write in step:
            if write.key not in newest or write.version > newest[write.key].version:
                newest[write.key] = write
        counts = dict.fromkeys(("written", "repeated", "stale"), 0)
        for key, write in newest.items():
            before = self.held.get(key)
            if before is None or write.version > before.version:
                self.held[key] = write
                counts["written"] += 1
            else:
                counts["repeated" if write.version == before.version else "stale"] += 1
        return Counts(**counts)


class History:
    """One drawn history over keys of its own."""

    def __init__(self, drawn: random.Random, number: int) -> None:
        self._drawn = drawn
        self._keys = [f"h{number:04d}-k{n}" for n in range(drawn.randint(1, 6))]
        self._staged: dict[str, dict[int, dict[str, str | None]]] = {"a": {}, "b": {}}
        self._live, self._epoch = "a", 1
        self._came: list[list[Write]] = []

    def steps(self, count: int) -> list[list[Write]]:
        """Return as many steps; a first one of them is always a batch."""
        kinds = ("batch", "batch", "missed", "repeat", "part", "stale", "switch", "switch")
        for number in range(count):
            kind = self._drawn.choice(kinds) if number else "batch"
            self._came.append(getattr(self, f"_{kind}")())
        return self._came

    def _batch(self) -> list[Write]:
        return self._published([self._next(self._live)])

    def _missed(self) -> list[Write]:
        return self._published([self._next(self._live) for _ in range(self._drawn.randint(2, 4))])

    def _repeat(self) -> list[Write]:
        return list(self._came[-1])

    def _part(self) -> list[Write]:
        again = self._drawn.choice(self._came)
        return [write for write in again if self._drawn.random() < 0.5]

    def _stale(self) -> list[Write]:
        """A job that was live once sends a batch under its old epoch; where none was, an old step comes again."""
        if self._epoch == 1:
            return list(self._drawn.choice(self._came))
        epoch, batch = self._drawn.randint(1, self._epoch - 1), self._drawn.randint(0, 9)
        keys = [key for key in self._keys if self._drawn.random() < 0.5]
        return [Write(key, coordinates.version(epoch, batch), self._said(key, epoch, batch)) for key in keys]

    def _switch(self) -> list[Write]:
        self._live = "b" if self._live == "a" else "a"
        self._epoch += 1
        if not self._staged[self._live] or self._drawn.random() < 0.5:
            self._next(self._live)
        batches = sorted(self._staged[self._live])
        there = {key for batch in batches for key in self._staged[self._live][batch]}
        gone = coordinates.version(self._epoch, batches[-1])
        vanished = [Write(key, gone, None) for key in self._keys if key not in there]
        return [*self._published(batches), *vanished]

    def _next(self, job: str) -> int:
        batch = len(self._staged[job])
        self._staged[job][batch] = {key: None for key in self._keys if self._drawn.random() < 0.6}
        return batch

    def _published(self, batches: Sequence[int]) -> list[Write]:
        writes = [
            Write(key, coordinates.version(self._epoch, batch), self._said(key, self._epoch, batch))
            for batch in batches
            for key in self._staged[self._live][batch]
        ]
        self._drawn.shuffle(writes)
        return writes

    def _said(self, key: str, epoch: int, batch: int) -> str | None:
        said = random.Random(f"{key} {epoch} {batch}")
        return None if said.random() < 0.2 else f"{said.random():.6f}"


def drawn(seed: int, count: int, steps: int) -> list[list[Write]]:
    """Return the steps of as many histories, step n of all of them in one."""
    source = random.Random(seed)
    histories = [History(source, number).steps(steps) for number in range(count)]
    return [[write for history in histories for write in history[n]] for n in range(steps)]


def added(sums: Counts, more: Counts) -> Counts:
    """Return the sums of two merges."""
    return Counts(*(a + b for a, b in zip(sums.__dict__.values(), more.__dict__.values(), strict=True)))
