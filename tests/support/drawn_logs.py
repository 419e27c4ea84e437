"""Logs as they are drawn: producers whose clocks are right, wrong or broken, transactions that end or hang."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.support.range_oracle import ABORTED, COMMITTED, PLAIN, Log
from tests.support.real_broker import COMPACTED

BEGUN = 1_757_000_000_000
STEP = 1_000
CLOCKS = ("in order", "equal", "backwards", "out of order", "ahead and behind", "the broker's")
TO_COME = 3_800_000_000_000
"""Later than the marks of any transaction, which have the broker's time: each record then begins a segment."""
FOR_EVER = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
"""Settings of a topic that takes any time, and whose records no retention takes away meanwhile: they look old."""


@dataclass(frozen=True)
class Drawn:
    """What is written to a topic, in order.

    Attributes:
        partitions: How many it has.
        clock: How the times of its records run: one of `CLOCKS`.
        config: Its settings.
        writes: Writer, partition, keys and times; or a writer and how it ends.
    """

    partitions: int
    clock: str
    config: dict[str, str]
    writes: tuple[tuple[Any, ...], ...]


def draw(random: Random, cleaned: bool) -> Drawn:
    """Return a log: each clock, with and without transactions, some of them left open; `cleaned` compacts the topic."""
    partitions, clock = random.randint(1, 3), CLOCKS[0] if cleaned else random.choice(CLOCKS)
    writers = [PLAIN, *(f"transaction {n}" for n in range(random.choice((0, 1, 2, 3))))]
    times, writes, going = _times(random, clock, cleaned), [], list(writers)
    for _ in range(random.randint(1, 13)):
        writer = random.choice(going)
        if writer != PLAIN and random.random() < 0.25:
            going.remove(writer)
            writes.append((writer, random.choice((COMMITTED, ABORTED))))
            continue
        records = [(b"%d" % random.randint(0, 4), next(times)) for _ in range(random.randint(1, 5))]
        writes.append((writer, random.randrange(partitions), records))
    # The cleaner leaves the newest segment alone: one that holds no key of the others.
    writes += [(PLAIN, p, [(b"last", next(times))]) for p in range(partitions) if cleaned]
    config = dict(FOR_EVER)
    config |= {"message.timestamp.type": "LogAppendTime"} if clock == "the broker's" else {}
    config |= COMPACTED if cleaned else {}
    return Drawn(partitions, clock, config, tuple(writes))


def _times(random: Random, clock: str, cleaned: bool) -> Iterator[int]:
    if cleaned:
        yield from itertools.count(TO_COME, STEP)
    at = BEGUN
    while True:
        at += {"equal": 0, "backwards": -STEP}.get(clock, random.choice((0, 1, STEP, STEP)))
        wrong = {"out of order": 0.5, "ahead and behind": 0.1}.get(clock, 0.0)
        far = {"out of order": 6 * STEP, "ahead and behind": 10**11}.get(clock, 0)
        yield at + random.randint(-far, far) if random.random() < wrong else at


def play(drawn: Drawn, kafka: Any, topic: str) -> Log:
    """Write a log to a broker, and return what was written; times of the broker's clock are still to be filled in."""
    log, open_ones = Log(drawn.partitions), {}
    for writer, *what in drawn.writes:
        if len(what) == 1:
            if writer in open_ones:
                made = open_ones.pop(writer)
                made.commit() if what[0] == COMMITTED else made.abort()
                log.end(writer, what[0])
            continue
        partition, records = what
        if writer == PLAIN:
            kafka.append(topic, partition, records)
        else:
            open_ones[writer] = open_ones.get(writer) or kafka.transaction()
            open_ones[writer].append(topic, partition, records)
        log.write(partition, [at for _, at in records], writer)
    return log
