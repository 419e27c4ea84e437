"""Source topic, producer and bystanders of the demo."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer

from examples.demo import producer, visits
from examples.demo.errors import DemoError
from examples.demo.producer import Progress
from examples.demo.world import World
from rewind.local import processes, stack
from rewind.local.processes import Command, Process
from rewind.local.progress import Look
from rewind.local.waiting import Waiting
from rewind.local.watched import Watched

STOP_SECONDS = 20
BYSTANDER_RECORDS = 3


@dataclass(frozen=True)
class Load:
    """A producer that runs.

    Attributes:
        process: Its process.
        state: File that says how far it has come.
    """

    process: Process
    state: Path

    def progress(self) -> Progress:
        """Return how far it has come.

        Raises:
            DemoError: It has died.
        """
        found = producer.read(self.state)
        if found is None or (not self.process.alive and not found.ended):
            raise DemoError(f"the producer died.\n{processes.last_lines(Path(self.process.log))}")
        return found

    def history_done(self) -> bool:
        """Return whether the history is on the broker."""
        if not self.process.alive:
            self.progress()
        found = producer.read(self.state)
        return found is not None and found.history_seconds is not None

    def stop(self) -> None:
        """Let it confirm what it has sent, and end."""
        processes.stop([self.process], STOP_SECONDS)


def start(bootstrap: str, topic: str, folder: Path, history: int, rate: int) -> Load:
    """Make the source topic and start its producer, a detached process that is recorded like those of the stack.

    Args:
        bootstrap: Address of the broker.
        topic: The source topic.
        folder: The demo's own folder.
        history: Records to write at full speed.
        rate: Records a second afterwards.
    """
    _create_topic(bootstrap, topic, visits.PARTITIONS)
    state = folder / "planted.json"
    state.unlink(missing_ok=True)
    options = {"--bootstrap": bootstrap, "--topic": topic, "--state": str(state)}
    numbers = {"--seed": visits.SEED, "--history": history, "--rate": rate}
    arguments = [text for name, value in {**options, **numbers}.items() for text in (name, str(value))]
    command = Command(
        name="producer",
        argv=[sys.executable, "-m", "examples.demo.producer", *arguments],
        environment={**os.environ, "PYTHONPATH": f"{stack.PROJECT / 'include'}:{stack.PROJECT}"},
        log=folder / "producer.log",
        cwd=folder,
    )
    return Load(processes.ensure([command], folder / "processes")[0], state)


def stop_earlier(folder: Path) -> None:
    """End the producer of a demo that was killed."""
    left = processes.load("producer", folder / "processes")
    if left is not None:
        processes.stop([left], STOP_SECONDS)


def await_history(load: Load, waits: Waiting) -> Progress:
    """Wait until the history is on the broker."""
    producing = Watched("producer", (load.process.pid,), (Path(load.process.log),))

    def look() -> Look[bool]:
        done, far = load.history_done(), producer.read(load.state)
        stored = 0 if far is None else far.stored
        return Look(done or None, f"{stored:,} records stored", stored)

    waits.until("the history", look, lambda: [producing])
    return load.progress()


def plant_bystanders(world: World, job_id: str, output: str) -> None:
    """Make things whose names begin like those of a job and that are not its own: they must survive its collection."""
    topic, group, folder = bystanders(world, job_id, output)
    _create_topic(world.settings.bootstrap, topic, 1)
    client = KafkaProducer(bootstrap_servers=world.settings.bootstrap, acks="all")
    for number in range(BYSTANDER_RECORDS):
        client.send(topic, f"bystander {number}".encode())
    client.flush()
    client.close()
    world.broker.commit(group, topic, {0: 2})
    folder.mkdir(parents=True)
    (folder / "kept.txt").write_text("not Rewind's to delete\n")


def bystanders(world: World, job_id: str, output: str) -> tuple[str, str, Path]:
    """Return topic, consumer group and folder of the bystanders of a job."""
    return f"{output}-neighbour", f"{job_id}-neighbour", world.settings.generations / f"{job_id}-neighbour"


def _create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({name: {"num_partitions": partitions}}, wait_for_metadata=True)
    finally:
        admin.close()
