"""Rights on Kafka's topics that a job will need, checked before anything is made; Kafka tells them of each topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rewind.control.announce import TOPIC
from rewind.core.pipeline import KAFKA, Pipeline
from rewind.core.world import Generation

READ = ("Read", "DescribeConfigs")
OUTPUT = ("Write", "Read", "DescribeConfigs", "Delete")
CONTROL = ("Write", "Read")


class Guarded(Protocol):
    """A broker that tells which rights a user has."""

    def check_rights(self, held: Mapping[str, Sequence[str]], made: Collection[str] = ()) -> None:
        """Check rights on topics that there are, and that others may be made."""


def before_making(broker: Guarded, pipeline: Pipeline, outputs: Collection[str], live: Generation | None) -> None:
    """Check what a new job will need: to read its source and live's output, to make its own, to announce its switch.

    Args:
        broker: The broker.
        pipeline: What is declared.
        outputs: Names of its topics or tables.
        live: The job that it is compared with; None for a first one.

    Raises:
        DeniedError: The first right that is missing, with the command that grants it.
    """
    held = {pipeline.source_topic: READ, TOPIC: CONTROL}
    if live is not None and live.frozen["config"].get("output_format", KAFKA) == KAFKA:
        held |= dict.fromkeys((live.output_topic, live.dead_letter_topic), READ)
    broker.check_rights(held, (*(outputs if pipeline.output_format == KAFKA else ()), TOPIC))


def when_made(broker: Guarded, outputs: Collection[str]) -> None:
    """Check on the topics that were made for a job what it will need until it is collected.

    Raises:
        DeniedError: The first right that is missing.
    """
    broker.check_rights(dict.fromkeys(outputs, OUTPUT))


def before_a_switch(broker: Guarded) -> None:
    """Check that a switch can be announced.

    Raises:
        DeniedError: A right on the control topic is missing.
    """
    broker.check_rights({TOPIC: CONTROL}, (TOPIC,))
