"""The streaming query of a generation: its logic over a stream of source records, and how a batch is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rewind.adapters.delta_output import STREAM_ORDINAL, Write
from rewind.adapters.sinks import sink_of
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.core.offsets import Ranges
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.steps.generation.logic import empty_records, empty_stream, load_logic, stamp_of
from rewind.transforms.logic import contract
from rewind.transforms.records import encoding, results

Records = Callable[[SparkSession], DataFrame | None]
"""Reads the source records of a micro-batch once more, as a batch frame; None when it has none."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch that is to be written.

    Attributes:
        number: Its id in the checkpoint.
        query_id: Id of the query that owns the checkpoint.
        ranges: Its source offsets.
    """

    number: int
    query_id: str
    ranges: Ranges


class Query:
    """The query of a pipeline without state: its batches hold records, which the logic sees when they are written."""

    def __init__(
        self, spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, token: int
    ) -> None:
        """Examine the logic.

        Raises:
            RefusedError: The logic breaks its contract, or the output is gone.
        """
        self._pipeline = pipeline
        self._logic = load_logic(pipeline)
        self._contract = contract.examine(self._logic, pipeline, empty_records(spark))
        self._stamp = stamp_of(generation, token)
        self._trusted_from = generation.trusted_from
        self._job = generation.job_id
        self._sink = sink_of(settings, generation, pipeline)

    def over(self, records: DataFrame) -> DataStreamWriter:
        """Return the writer of the query over a stream of source records; nothing runs yet."""
        return records.writeStream

    def write(self, rows: DataFrame, batch: Batch, records: Records) -> None:  # noqa: ARG002 - for those with state
        """Write a micro-batch, to Kafka at least once, to Delta once.

        Args:
            rows: What the query gave.
            batch: The micro-batch; run again, it is written with the same versions.
            records: For a logic with state, what reads its records again.
        """
        encoded = encoding.encode(rows, self._logic, self._pipeline, self._contract, self._stamp)
        self._write(encoded, batch, STREAM_ORDINAL + batch.number)

    def _write(self, rows: DataFrame, batch: Batch, ordinal: int) -> None:
        with side_effect("batch.write"):
            application = f"{self._job}-stream-{batch.query_id}"
            self._sink.write(rows, Write(application, batch.number, ordinal, batch.ranges))


class KeyedQuery(Query):
    """The query of a pipeline with state: its batches hold results, not records."""

    def __init__(
        self, spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, token: int
    ) -> None:
        """Examine the logic, and hold it against the state that the generation was made for.

        Raises:
            RefusedError: It keeps another state: what the checkpoint holds would mean nothing to it.
        """
        super().__init__(spark, settings, generation, pipeline, token)
        kept = list(generation.kept_state)
        found = contract.state_shape(self._logic, pipeline, empty_stream(spark))
        if found != kept:
            problem = f"no longer fits the state of {generation.job_id}: it was kept as {kept}, and is read as {found}"
            raise RefusedError("logic", problem, "Restore its bundle, or rewind in parallel: that rebuilds the state")

    def over(self, records: DataFrame) -> DataStreamWriter:
        """Return the writer of the logic's results."""
        rows = self._logic(results.usable(records, self._pipeline))
        return rows.writeStream.outputMode(self._pipeline.output_mode)

    def write(self, rows: DataFrame, batch: Batch, records: Records) -> None:
        """Write the results of a micro-batch and the dead letters among its records.

        A named source cannot be read twice in one plan (Spark 4.2: `DUPLICATE_SOURCE_NAMES`), and a result tells
        nothing of what never reached it: so the records are read again for those that are rejected.
        """
        encoded = results.encode(self._whole(rows), self._pipeline, self._contract, self._stamp, batch.number)
        read = records(rows.sparkSession)
        if read is not None:
            encoded = encoded.unionByName(results.encode_rejects(read, self._pipeline, self._contract, self._stamp))
        # One checkpoint from the first chunk on: its batches are in order by themselves.
        self._write(encoded, batch, batch.number)

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Leave out warm-up: results that may lack records from before the generation's start."""
        if self._trusted_from is None:
            return rows
        return rows.where(F.unix_millis(self._pipeline.result_starts) >= self._trusted_from)


def query_of(spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, token: int) -> Query:
    """Return the query that a generation's pipeline needs."""
    kind = KeyedQuery if pipeline.stateful else Query
    return kind(spark, settings, generation, pipeline, token)
