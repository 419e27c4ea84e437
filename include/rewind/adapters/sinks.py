"""Where a generation's rows go: Kafka topics, at least once, or Delta tables, once."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rewind.adapters import delta_output, kafka, table_watch
from rewind.adapters.delta_output import Write
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.core.pipeline import DELTA, Pipeline
from rewind.core.settings import Settings
from rewind.runtime import tables
from rewind.runtime.kafka.broker import Broker
from rewind.transforms.records.encoding import SINK_COLUMNS


class Sink(Protocol):
    """Takes encoded rows: `encoding.SINK_COLUMNS` and `fields`, the typed columns."""

    def write(self, rows: DataFrame, made: Write) -> None:
        """Write the rows of a chunk or micro-batch."""


class KafkaSink:
    """The topics of a generation."""

    def __init__(self, settings: Settings, generation: Generation) -> None:
        """Describe the output once, for its limits.

        Raises:
            RefusedError: It is gone.
        """
        found = Broker(settings).topic(generation.output_topic)
        if found is None:
            raise _gone(generation)
        self._settings = settings
        self._limits = found.config

    def write(self, rows: DataFrame, made: Write) -> None:  # noqa: ARG002 - the headers say all of it
        """Write results and dead letters in one, by the topic column."""
        kafka.write(rows.select(*SINK_COLUMNS), self._settings, self._limits)


class DeltaSink:
    """The tables of a generation."""

    def __init__(self, settings: Settings, generation: Generation) -> None:
        """Check that both are there.

        Raises:
            RefusedError: One is gone, or is another.
        """
        both = (generation.output_topic, generation.dead_letter_topic)
        if any(tables.id_of(settings, name) is None for name in both):
            raise _gone(generation)
        self._generation = generation
        self._rows = str(tables.path(settings, generation.output_topic))
        self._dead = str(tables.path(settings, generation.dead_letter_topic))
        self._watches = [table_watch.of_output(settings, generation, name) for name in both]

    def write(self, rows: DataFrame, made: Write) -> None:
        """Write results and dead letters, a commit each; tried again, each lands once.

        Raises:
            QuarantineError: Somebody restored, emptied or rewrote a table: its write ids tell nothing any more.
        """
        for watch in self._watches:
            watch.check(rows.sparkSession)
        mine = F.col("topic") == self._generation.output_topic
        # Read and parsed once for both tables. It also keeps the choice of rows, and each column, from taking a copy of
        # all checks of a record along: of forty nested columns the plan took minutes.
        rows.persist()
        try:
            delta_output.write(rows.where(mine), self._rows, made)
            with side_effect("sink.dead_letters"):
                delta_output.write_dead(rows.where(~mine), self._dead, made)
        finally:
            rows.unpersist()


def sink_of(settings: Settings, generation: Generation, pipeline: Pipeline) -> Sink:
    """Return where a generation's rows go.

    Raises:
        RefusedError: That is gone.
    """
    return (DeltaSink if pipeline.output_format == DELTA else KafkaSink)(settings, generation)


def _gone(generation: Generation) -> RefusedError:
    cure = "Restore it, or rewind with same_code"
    return RefusedError("output", f"{generation.output_topic} is gone", cure)
