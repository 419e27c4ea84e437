"""One chunk of a backfill of a pipeline without state: through the logic, in offset order, to the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from rewind.adapters import kafka
from rewind.control.broker import Broker
from rewind.control.guard import Guard
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.offsets import OffsetRange, Ranges
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.steps.history import History
from rewind.steps.logic import empty_records, load_logic, stamp_of
from rewind.transforms import contract, encoding
from rewind.transforms.parsing import SOURCE_COLUMNS


class Chunks:
    """Runs chunks into one generation's output."""

    def __init__(
        self, spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, guard: Guard
    ) -> None:
        """Examine the logic once."""
        self._settings = settings
        self._pipeline = pipeline
        self._guard = guard
        self._history = History(spark, settings, pipeline, generation.topic_id)
        self._logic = load_logic(pipeline)
        self._contract = contract.examine(self._logic, pipeline, empty_records(spark))
        self._stamp = stamp_of(generation, guard.token)
        output = Broker(settings).topic(generation.output_topic)
        if output is None:
            raise RefusedError("output.topic", f"{generation.output_topic} is gone", "Abort, then rewind again")
        self._limits = output.config

    def run(self, ranges: Ranges, version: int, accepted: Mapping[int, Sequence[OffsetRange]]) -> tuple[int, int]:
        """Process the records of some offsets and return how many there were, and how many repeats.

        Raises:
            IntegrityError: Records are missing that no legal or accepted hole explains, or stand twice with
                different bytes. Nothing has been written.
        """
        rows, records, repeats = self._history.read(ranges, version, accepted)
        self._guard.check()
        ordered = encoding.in_source_order(rows.select(*SOURCE_COLUMNS), "partition", "offset")
        with side_effect("chunk.write"):
            encoded = encoding.encode(ordered, self._logic, self._pipeline, self._contract, self._stamp)
            kafka.write(encoded, self._settings, self._limits)
        return records, repeats
