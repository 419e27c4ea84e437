"""Rights on Kafka's topics that a job will need, checked before anything is made; Kafka tells them of each topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rewind.core.model import Generation
from rewind.core.pipeline import KAFKA, Pipeline
from rewind.runtime.announce import TOPIC

READ = ("Read", "DescribeConfigs")
OUTPUT = ("Write", "Read", "DescribeConfigs", "Delete")
CONTROL = ("Write", "Read")


class Guarded(Protocol):
    """A broker that tells which rights a user has."""

    def check_rights(self, held: Mapping[str, Sequence[str]], made: Collection[str] = ()) -> None:
        """Check rights on topics that there are, and that others may be made."""

    def check_group(self, group: str, topic: str = "") -> None:
        """Check that a group may be deleted, and its positions on a topic, where one is named, committed."""


def before_making(
    broker: Guarded, pipeline: Pipeline, job: str, outputs: Collection[str], live: Generation | None
) -> None:
    """Check what a new job will need: to read its source and live's output, to make its own, to announce its switch.

    Args:
        broker: The broker.
        pipeline: What is declared.
        job: The job's id, which is its consumer group too.
        outputs: Names of its topics or tables.
        live: The job that it is compared with; None for a first one.

    Raises:
        DeniedError: The first right that is missing, with the command that grants it.
    """
    held = {pipeline.source_topic: READ, TOPIC: CONTROL}
    if live is not None:
        held |= dict.fromkeys(_topics(live), READ)
    broker.check_rights(held, (*(outputs if pipeline.output_format == KAFKA else ()), TOPIC))
    broker.check_group(job, pipeline.source_topic)


def when_made(broker: Guarded, outputs: Collection[str]) -> None:
    """Check on the topics that were made for a job what it will need until it is collected.

    Raises:
        DeniedError: The first right that is missing.
    """
    broker.check_rights(dict.fromkeys(outputs, OUTPUT))


def before_a_backfill(broker: Guarded, pipeline: Pipeline, made: Generation) -> None:
    """Check what a backfill needs: to see where its source ends, to write, and to say how far it came.

    Raises:
        DeniedError: The first right that is missing.
    """
    broker.check_rights({pipeline.source_topic: READ, **dict.fromkeys(_topics(made), OUTPUT)})
    broker.check_group(made.job_id, pipeline.source_topic)


def before_comparing(broker: Guarded, jobs: Collection[Generation]) -> None:
    """Check that the outputs of jobs can be read.

    Raises:
        DeniedError: The first right that is missing.
    """
    if held := {topic: READ for job in jobs for topic in _topics(job)}:
        broker.check_rights(held)


def before_a_switch(broker: Guarded, jobs: Collection[Generation]) -> None:
    """Check that a switch between jobs can be announced, with where their outputs ended.

    Raises:
        DeniedError: The first right that is missing.
    """
    read = {topic: READ for job in jobs for topic in _topics(job)}
    broker.check_rights({**read, TOPIC: CONTROL}, (TOPIC,))


def before_a_collection(broker: Guarded, topics: Collection[str], groups: Collection[str]) -> None:
    """Check that what a job owns may be deleted.

    Raises:
        DeniedError: The first right that is missing.
    """
    if topics:
        broker.check_rights(dict.fromkeys(topics, ("DescribeConfigs", "Delete")))
    for group in groups:
        broker.check_group(group)


def _topics(job: Generation) -> tuple[str, ...]:
    """Return the topics of a job's output: none where that is a table."""
    if job.output_format != KAFKA:
        return ()
    return (job.output_topic, job.dead_letter_topic)
