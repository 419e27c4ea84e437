"""A driver is frozen at a point, its successor goes on, and it wakes: nothing of it may count."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rewind.core import coordinates, crash
from rewind.core.offsets import Vector
from rewind.registry import leases
from rewind.registry.leases import Holder
from rewind.runtime.drivers import declared_dead, supervise
from rewind.runtime.kafka.broker import Broker
from tests.scenarios import crashes
from tests.scenarios.crashes import visit
from tests.support.workshop import Record, Workshop, wait_for

NAMED = (
    "before:batch.write",
    "after:batch.write",
    "before:progress.record",
    "after:progress.record",
    "after:group.commit",
)
"""Points of a stream at which the driver stops itself."""
SEEN = ("lease taken", "offsets written", "output grows", "batch committed")
"""Moments of a stream that are seen from outside, and at which it is stopped."""
STREAM = NAMED + SEEN
MIRROR = ("before:mirror.append", "after:mirror.append")
RECORDS = 30
"""Records of one portion; a portion comes before the freeze, one while it lasts, two after it."""


@dataclass
class Frozen:
    """A driver that was stopped, and the token it held."""

    holder: Holder
    token: int


class Life:
    """A stream that is frozen again and again, and all that its topic was given."""

    def __init__(self, shop: Workshop, owner: str, patch: pytest.MonkeyPatch) -> None:
        """Keep the parts; the stream is deployed."""
        self.shop = shop
        self.owner = owner
        self.patch = patch
        self.produced = 0

    def produce(self, count: int = RECORDS) -> None:
        """Produce visits of few keys, so that order counts."""
        for p in range(2):
            records = (visit(n) for n in range(self.produced + p, self.produced + count, 2))
            self.shop.produce(*((b"%d" % (n % 3), body) for n, (_, body) in enumerate(records)), partition=p)
        self.produced += count

    def through(self, point: str) -> int:
        """Freeze the driver at a point, declare it dead, let it wake; return in how many batches it then wrote."""
        frozen = self.freeze(point)
        declared_dead.declare(
            self.shop.settings, self.owner, frozen.token, "tester", f"stopped at {point}", stopped=True
        )
        self.produce()
        self.shop.start(self.owner)
        self.shop.caught_up(self.owner)
        return self.wake(frozen)

    def freeze(self, point: str) -> Frozen:
        """Run a driver into a point."""
        if self.shop.holder(self.owner):
            self.shop.stop(self.owner)
        before = self.moment()
        if point not in SEEN:
            self.patch.setenv(crash.FREEZE, point)
        self.shop.start(self.owner)
        self.patch.delenv(crash.FREEZE, raising=False)
        frozen = self._held()
        if point != "lease taken":
            self.produce()
        if point in SEEN:
            watch(point, lambda: passed(point, before, self.moment()))
            os.killpg(frozen.holder.group, signal.SIGSTOP)
        wait_for(f"{self.owner} stopped at {point}", lambda: stopped(frozen.holder), 60)
        return frozen

    def wake(self, frozen: Frozen) -> int:
        """Let a frozen driver go on beside its successor until it has ended; return in how many batches it wrote."""
        before = self.ends()
        os.killpg(frozen.holder.group, signal.SIGCONT)
        for _ in range(2):
            self.produce()
            self.shop.caught_up(self.owner)
        wait_for("the end of the driver that woke", lambda: not leases.alive(frozen.holder), 60)
        late = (r for r in self.output() if r.offset >= before.get(r.partition, 0))
        return len(self._batches([r for r in late if r.headers[coordinates.TOKEN] == str(frozen.token)]))

    def ends(self) -> Vector:
        """Return the ends of the stream's output; empty for a mirror."""
        if self.owner == self.shop.mirror:
            return {}
        found = Broker(self.shop.settings).topic(f"{self.shop.pipeline}-out-g1")
        return found.latest if found else {}

    def output(self) -> list[Record]:
        """Return what the stream has written; nothing for a mirror."""
        return [] if self.owner == self.shop.mirror else self.shop.read(f"{self.shop.pipeline}-out-g1")

    def moment(self) -> tuple[int, int, int]:
        """Return the newest batch begun and committed, and how much is written."""
        begun, committed = (numbers(self.checkpoint() / log) for log in ("offsets", "commits"))
        return max(begun, default=-1), max(committed, default=-1), sum(self.ends().values())

    def checkpoint(self) -> Path:
        """Return the stream's checkpoint."""
        return supervise.checkpoint_folder(self.shop.settings, self.owner)

    def check(self) -> None:
        """Hold the end against that of a life without a frozen writer."""
        found = self.output()
        by_source: dict[str, set[bytes | None]] = {}
        for record in found:
            by_source.setdefault(record.headers[coordinates.SOURCE], set()).add(record.value)
        assert len(by_source) == self.produced
        assert all(len(values) == 1 for values in by_source.values()), "a repeat with other content"
        assert out_of_order(found) == 0
        begun, committed = (numbers(self.checkpoint() / log) for log in ("offsets", "commits"))
        assert begun == committed == list(range(len(begun)))
        assert self.shop.position(self.owner) == self.shop.end()
        assert Broker(self.shop.settings).group_offsets(self.owner, self.shop.topic) == self.shop.end()

    def _held(self) -> Frozen:
        with self.shop.registry() as connection:
            lease = leases.read(connection, self.owner)
        assert lease is not None
        assert lease.holder is not None
        return Frozen(lease.holder, lease.token)

    def _batches(self, records: list[Record]) -> set[int]:
        """Return the batches whose ranges some output records came from."""
        ends = [batch_end(self.checkpoint() / "offsets" / str(n)) for n in numbers(self.checkpoint() / "offsets")]
        found = set()
        for record in records:
            place = coordinates.parse(record.headers[coordinates.SOURCE])
            found.add(next(n for n, end in enumerate(ends) if place.offset < end.get(str(place.partition), 0)))
        return found


def over_a_switch(shop: Workshop, records: int) -> None:
    """Freeze the live job before a cut-over and wake it after: it stands by then, and both outputs are whole."""
    life = crashes.Life(shop, ())
    life.begin(records)
    plan = shop.planned(crashes.REWIND, same_code=True)
    for step in ("spin_up", "backfill"):
        shop.step(step, crashes.REWIND)
    shop.start(plan.job_id)
    shop.caught_up(plan.job_id)
    shop.step("validate", crashes.REWIND)
    shop.approve(crashes.REWIND)
    frozen = shop.holder(plan.live_job_id)
    assert frozen is not None
    os.killpg(frozen.group, signal.SIGSTOP)
    shop.step("cut_over", crashes.REWIND)
    for p in range(2):
        shop.produce(*(visit(n) for n in range(records + p, 2 * records, 2)), partition=p)
    shop.caught_up(plan.job_id)
    os.killpg(frozen.group, signal.SIGCONT)
    shop.caught_up(plan.live_job_id)
    assert life.states() == {plan.live_job_id: "standby", plan.job_id: "live"}
    assert shop.holder(plan.live_job_id) == frozen, "it lost nothing: with outputs of its own it goes on as standby"
    both = [life.sources(f"{shop.pipeline}-out-g{n}") for n in (1, 2)]
    assert [len(sources) for sources in both] == [2 * records, 2 * records]
    assert set(both[0]) == set(both[1])


def watch(what: str, condition: Callable[[], bool]) -> None:
    """Wait closely: the moment passes."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} was not seen"


def passed(point: str, before: tuple[int, int, int], at: tuple[int, int, int]) -> bool:
    """Return whether a moment of `SEEN` has come."""
    begun, committed, written = (now > then for now, then in zip(at, before, strict=True))
    return {
        "lease taken": True,
        "offsets written": begun,
        "output grows": written,
        "batch committed": committed,
    }[point]


def stopped(holder: Holder) -> bool:
    """Return whether each process of a holder is stopped."""
    states = [Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split()[0] for p in holder.processes]
    return set(states) == {"T"}


def numbers(folder: Path) -> list[int]:
    """Return the batches that a log of a checkpoint names, in order."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def batch_end(file: Path) -> dict[str, int]:
    """Return the end of a batch, per source partition, as the offset log has it."""
    (partitions,) = json.loads(file.read_text().splitlines()[2]).values()
    return {str(p): int(o) for p, o in partitions.items()}


def out_of_order(records: list[Record]) -> int:
    """Return how many records, repeats left out, came before an earlier one of their key."""
    newest: dict[tuple[bytes | None, int], int] = {}
    seen, wrong = set(), 0
    for record in records:
        place = coordinates.parse(record.headers[coordinates.SOURCE])
        if place in seen:
            continue
        seen.add(place)
        key = (record.key, place.partition)
        wrong += place.offset < newest.get(key, -1)
        newest[key] = max(place.offset, newest.get(key, -1))
    return wrong
