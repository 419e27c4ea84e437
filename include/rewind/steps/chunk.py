"""One chunk of a backfill: checked against the mirror's records, then through the logic, in offset order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import kafka
from rewind.adapters import mirror as table
from rewind.adapters.mirror_reader import read_state
from rewind.control.broker import Broker
from rewind.control.guard import Guard
from rewind.core.crash import side_effect
from rewind.core.errors import IntegrityError, RefusedError
from rewind.core.offsets import OffsetRange, Ranges, merged
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.core.world import Generation
from rewind.steps.logic import empty_records, load_logic, stamp_of
from rewind.transforms import contract, encoding
from rewind.transforms.parsing import SOURCE_COLUMNS

SHOWN = 5


class Chunks:
    """Runs chunks into one generation's output."""

    def __init__(
        self, spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, guard: Guard
    ) -> None:
        """Examine the logic once."""
        self._spark = spark
        self._settings = settings
        self._generation = generation
        self._pipeline = pipeline
        self._guard = guard
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
        path = table.table_path(self._settings, self._pipeline.source_topic)
        rows = table.read(self._spark, path, version).where(table.in_ranges(ranges, self._generation.topic_id))
        records, repeats = self._checked(rows, ranges, accepted)
        self._guard.check()
        unique = rows.dropDuplicates(["partition", "offset"]) if repeats else rows
        ordered = encoding.in_source_order(unique.select(*SOURCE_COLUMNS), "partition", "offset")
        with side_effect("chunk.write"):
            encoded = encoding.encode(ordered, self._logic, self._pipeline, self._contract, self._stamp)
            kafka.write(encoded, self._settings, self._limits)
        return records, repeats

    def _checked(
        self, rows: DataFrame, ranges: Ranges, accepted: Mapping[int, Sequence[OffsetRange]]
    ) -> tuple[int, int]:
        places = rows.select("partition", "offset").groupBy("partition")
        found = places.agg(F.count(F.lit(1)).alias("rows"), F.count_distinct("offset").alias("offsets")).collect()
        offsets = {row["partition"]: row["offsets"] for row in found}
        repeats = sum(row["rows"] - row["offsets"] for row in found)
        if repeats:
            self._refuse_conflicts(rows)
        holes = self._known_holes(ranges, accepted)
        expected = {p: len(r) - holes[p] for p, r in ranges.items()}
        short = {p: (offsets.get(p, 0), n) for p, n in expected.items() if offsets.get(p, 0) != n}
        if short:
            raise IntegrityError(f"the mirror lacks or adds records (found, recorded per partition: {short})")
        return sum(offsets.values()), repeats

    def _known_holes(self, ranges: Ranges, accepted: Mapping[int, Sequence[OffsetRange]]) -> dict[int, int]:
        """Return how many offsets of each range hold no record, by the commit records and what was accepted."""
        topic = Broker(self._settings).topic(self._pipeline.source_topic)
        state = read_state(self._settings, topic, self._pipeline.transactional) if topic is not None else None
        known = state.holes if state is not None else {}
        parts = {p: [*known.get(p, ()), *accepted.get(p, ())] for p in ranges}
        return {p: sum(map(len, merged(hole.overlap(r) for hole in parts[p]))) for p, r in ranges.items()}

    def _refuse_conflicts(self, rows: DataFrame) -> None:
        content = F.xxhash64("key", "value", "headers", "timestamp")
        days = F.sort_array(F.collect_set("ingest_date")).alias("days")
        grouped = rows.groupBy("partition", "offset").agg(F.count_distinct(content).alias("contents"), days)
        bad = grouped.where(F.col("contents") > 1).orderBy("partition", "offset").limit(SHOWN).collect()
        if bad:
            text = "; ".join(f"partition {r['partition']} offset {r['offset']} ingested on {r['days']}" for r in bad)
            raise IntegrityError(f"the mirror holds different bytes for one offset: {text}. Was the topic recreated?")
