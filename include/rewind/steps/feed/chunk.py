"""One chunk of a backfill of a pipeline without state: through the logic, in offset order, to the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, SparkSession

from rewind.adapters.delta_output import Write
from rewind.adapters.sinks import sink_of
from rewind.core.crash import side_effect
from rewind.core.model import Generation
from rewind.core.offsets import OffsetRange, Ranges
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.runtime.drivers.guard import Guard
from rewind.steps.feed.history import History
from rewind.steps.generation.logic import empty_records, load_logic, stamp_of
from rewind.transforms.logic import contract
from rewind.transforms.records import encoding
from rewind.transforms.values.parsing import SOURCE_COLUMNS


class Chunks:
    """Runs chunks into one generation's output."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        generation: Generation,
        pipeline: Pipeline,
        guard: Guard,
        only: Column | None = None,
    ) -> None:
        """Examine the logic once; `only` says which source records are processed, of those that are read."""
        self._pipeline = pipeline
        self._guard = guard
        self._history = History(spark, settings, pipeline, generation.topic_id)
        self._logic = load_logic(pipeline)
        self._contract = contract.examine(self._logic, pipeline, empty_records(spark))
        self._stamp = stamp_of(generation, guard.token)
        self._job = generation.job_id
        self._only = only
        self._sink = sink_of(settings, generation, pipeline)

    def run(
        self, number: int, ranges: Ranges, version: int, accepted: Mapping[int, Sequence[OffsetRange]]
    ) -> tuple[int, int]:
        """Process the records of a chunk and return how many there were, and how many repeats.

        Raises:
            IntegrityError: Records are missing that no legal or accepted hole explains, or stand twice with
                different bytes. Nothing has been written.
        """
        rows, records, repeats = self._history.read(ranges, version, accepted)
        self._guard.check()
        wanted = rows if self._only is None else rows.where(self._only)
        ordered = encoding.in_source_order(wanted.select(*SOURCE_COLUMNS), "partition", "offset")
        with side_effect("chunk.write"):
            encoded = encoding.encode(ordered, self._logic, self._pipeline, self._contract, self._stamp)
            self._sink.write(encoded, Write(f"{self._job}-backfill", number, number, ranges))
        return records, repeats
