"""The streaming query of a generation: its logic over a stream of source records, and how a batch is written."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rewind.adapters import kafka
from rewind.control.broker import Broker
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.steps.logic import empty_records, load_logic, stamp_of
from rewind.transforms import contract, encoding, results

Records = Callable[[SparkSession, int], DataFrame | None]
"""Reads the source records of a micro-batch once more, as a batch frame; None when it has none."""


class Query:
    """The query of a pipeline without state: its batches hold records, which the logic sees when they are written."""

    def __init__(
        self, spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, token: int
    ) -> None:
        """Examine the logic.

        Raises:
            RefusedError: The logic breaks its contract, or the output is gone.
        """
        self._settings = settings
        self._pipeline = pipeline
        self._logic = load_logic(pipeline)
        self._contract = contract.examine(self._logic, pipeline, empty_records(spark))
        self._stamp = stamp_of(generation, token)
        self._trusted_from = generation.frozen.get("trusted_from")
        output = Broker(settings).topic(generation.output_topic)
        if output is None:
            cure = "Restore it, or rewind with same_code"
            raise RefusedError("output.topic", f"{generation.output_topic} is gone", cure)
        self._limits = output.config

    def over(self, records: DataFrame) -> DataStreamWriter:
        """Return the writer of the query over a stream of source records; nothing runs yet."""
        return records.writeStream

    def write(self, rows: DataFrame, batch: int, records: Records) -> None:  # noqa: ARG002 - for those with state
        """Write a micro-batch, at least once.

        Args:
            rows: What the query gave.
            batch: The micro-batch; run again, it is written with the same versions.
            records: For a logic with state, what reads its records again.
        """
        self._write(encoding.encode(rows, self._logic, self._pipeline, self._contract, self._stamp))

    def _write(self, sink: DataFrame) -> None:
        with side_effect("batch.write"):
            kafka.write(sink, self._settings, self._limits)


class KeyedQuery(Query):
    """The query of a pipeline with state: its batches hold results, not records."""

    def over(self, records: DataFrame) -> DataStreamWriter:
        """Return the writer of the logic's results."""
        rows = self._logic(results.usable(records, self._pipeline))
        return rows.writeStream.outputMode(self._pipeline.output_mode)

    def write(self, rows: DataFrame, batch: int, records: Records) -> None:
        """Write the results of a micro-batch and the dead letters among its records.

        A named source cannot be read twice in one plan (Spark 4.2: `DUPLICATE_SOURCE_NAMES`), and a result tells
        nothing of what never reached it: so the records are read again for those that are rejected.
        """
        sink = results.encode(self._whole(rows), self._pipeline, self._contract, self._stamp, batch)
        read = records(rows.sparkSession, batch)
        if read is not None:
            sink = sink.unionByName(results.encode_rejects(read, self._pipeline, self._stamp))
        self._write(sink)

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Leave out warm-up: results that may lack records from before the generation's start."""
        if self._trusted_from is None:
            return rows
        return rows.where(F.unix_millis(self._pipeline.result_starts) >= self._trusted_from)


def query_of(spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, token: int) -> Query:
    """Return the query that a generation's pipeline needs."""
    kind = KeyedQuery if pipeline.stateful else Query
    return kind(spark, settings, generation, pipeline, token)
