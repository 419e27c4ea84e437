"""A rewind under load while drivers are killed and the broker is bounced: what goes in comes out, in order."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from kafka import KafkaProducer

from rewind.core.coordinates import SOURCE
from rewind.core.errors import RetryError
from rewind.core.offsets import reached
from rewind.local import broker as local_broker
from rewind.registry import generations, leases, streams
from rewind.runtime.drivers import supervise
from tests.scenarios.crashes import visit
from tests.scenarios.frozen_writer import out_of_order
from tests.support.ground import Ground
from tests.support.workshop import Ended, Workshop, wait_for

REWIND = "rw-5000000000"
PARTITIONS = 2
KEYS = 101
SLICE = 500
TRIES = 12
"""Attempts at a step: a bounce fails one, and the retry that Airflow would make finds the broker again, or the next."""


@dataclass
class Soak:
    """A pipeline on a broker of its own, and what is done to it.

    Attributes:
        ground: The pipeline and its broker.
        rng: Draws whom to kill, and when.
        counts: What was done.
    """

    ground: Ground
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def shop(self) -> Workshop:
        """The pipeline."""
        return self.ground.shop

    def owners(self) -> list[str]:
        """Return the streams that are wished to run."""
        with self.shop.registry() as connection:
            return [stream.owner for stream in streams.all_of(connection) if stream.wish == streams.RUN]

    def supervise(self) -> None:
        """Look at each stream again and again, as its sensor does; a crash loop is of our making, and is lifted."""
        while not self.over.wait(0.5):
            # Whatever is away comes back, and the next look finds it.
            with suppress(RetryError, OSError):
                for owner in self.owners():
                    sighting = supervise.look(self.shop.settings, owner)
                    if sighting.state in (supervise.WAITING, supervise.QUARANTINED):
                        self.shop.wish(owner)

    def produce(self, events: int, size: int = SLICE) -> None:
        """Produce events of few keys, slice by slice, through every bounce, until there are enough or all is over."""
        producer = KafkaProducer(
            bootstrap_servers=self.shop.settings.bootstrap, enable_idempotence=True, delivery_timeout_ms=300_000
        )
        for first in range(0, events, size):
            for n in range(first, first + size):
                producer.send(
                    self.shop.topic, key=b"%d" % (n % KEYS), value=visit(n)[1], partition=n % KEYS % PARTITIONS
                )
            producer.flush()
            self.counts["events"] += size
            # A rate, not a synchronisation: the load lasts as long as the rewind.
            if self.over.wait(0.5):
                break
        producer.close()

    def trouble(self, kills: int, bounces: int) -> None:
        """Kill drivers and bounce the broker in a drawn order, each time when all streams run again."""
        deeds: list[Callable[[], None]] = [self.kill] * kills + [self.bounce] * bounces
        self.rng.shuffle(deeds)
        for deed in deeds:
            wait_for("all drivers", lambda: all(self.shop.holder(owner) for owner in self.owners()))
            deed()

    def kill(self) -> None:
        """Kill one of the drivers, its JVM with it."""
        owner = self.rng.choice(self.owners())
        holder = self.shop.holder(owner)
        if holder is None:
            return self.kill()
        os.killpg(holder.group, signal.SIGKILL)
        wait_for(f"the end of {owner}", lambda: not leases.alive(holder))
        self.counts["kills"] += 1
        return None

    def bounce(self) -> None:
        """Kill the broker and start it again."""
        self.ground.kill_broker()
        self.ground.start_broker()
        self.counts["bounces"] += 1

    def step(self, job: str, *arguments: str) -> Ended:
        """Run a step until it is done, as Airflow's retries do; only what may be retried is."""
        for _ in range(TRIES):
            ended = self.shop.submit(job, *arguments)
            if ended.code == 0:
                return ended
            self.counts["retries"] += 1
            # The switch refuses a candidate whose driver was just killed: somebody clears it when that runs again.
            killed = "has no living driver" in ended.output
            assert killed or ended.code in (1, RetryError.exit_code), ended.output[-3_000:]
            wait_for("the broker", lambda: local_broker.is_answering(self.shop.settings.bootstrap))
            wait_for("all drivers", lambda: all(self.shop.holder(owner) for owner in self.owners()))
        raise AssertionError(f"{job} did not get through: {ended.output[-3_000:]}")

    def rewind(self) -> None:
        """Rewind from the beginning and switch."""
        of = ("--rewind-id", REWIND)
        self.step("plan", *of, "--pipeline", self.shop.pipeline, "--request", '{"dry_run": false, "same_code": true}')
        for job in ("spin_up", "backfill"):
            self.step(job, *of)
        self.shop.wish(f"{self.shop.pipeline}-g2")
        for job in ("validate", "cut_over"):
            if job == "cut_over":
                self.shop.approve(REWIND)
            self.step(job, *of)

    def caught_up(self) -> None:
        """Wait until all streams have read to the end of the topic."""
        end = self.shop.end()
        for owner in self.owners():
            wait_for(f"{owner} at {end}", lambda owner=owner: reached(self.shop.position(owner), end))

    def check(self, numbers: Sequence[int] = (1, 2)) -> None:
        """Hold outputs against the topic: the same set of sources, each key in order; the last of them is live."""
        wanted = {f"{p}:{o}" for p, end in self.shop.end().items() for o in range(end)}
        for n in numbers:
            records = self.shop.read(f"{self.shop.pipeline}-out-g{n}")
            sources = Counter(r.headers[SOURCE].partition(":")[2] for r in records)
            assert sources.keys() == wanted, f"g{n}: {len(sources)} of {len(wanted)}"
            self.counts[f"repeats_g{n}"] = sources.total() - len(sources)
            assert out_of_order(records) == 0
        with self.shop.registry() as connection:
            live, epoch = generations.live(connection, self.shop.pipeline) or (None, 0)
        assert live is not None
        assert (live.job_id, epoch) == (f"{self.shop.pipeline}-g{numbers[-1]}", numbers[-1])


def soak(life: Soak, events: int, kills: int, bounces: int) -> Counter[str]:
    """Rewind under load and trouble; return what was counted."""
    with loaded(life) as start:
        load = start(lambda: life.produce(events))
        wait_for("some history", lambda: life.counts["events"] >= events // 4)
        trouble = start(lambda: life.trouble(kills, bounces))
        rewind = start(life.rewind)
        for doing in (load, trouble, rewind):
            doing.result()
        life.caught_up()
    life.check()
    return life.counts


@contextmanager
def loaded(life: Soak) -> Iterator[Callable[[Callable[[], None]], Future[None]]]:
    """Deploy, and run things beside each other, all streams supervised; all end with the block."""
    live = life.shop.deploy()
    for owner in (live, life.shop.mirror):
        life.shop.start(owner)
    with ThreadPoolExecutor(4) as pool:
        watch = pool.submit(life.supervise)
        try:
            yield pool.submit
        finally:
            life.over.set()
        watch.result()


def figures(counts: Counter[str]) -> Sequence[tuple[str, int]]:
    """Return what a soak is told by."""
    return [(name, counts[name]) for name in ("events", "kills", "bounces", "retries", "repeats_g1", "repeats_g2")]
