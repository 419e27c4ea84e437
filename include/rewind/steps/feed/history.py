"""The records of a range as a version of the mirror holds them, checked against what its commits recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror as table
from rewind.adapters.mirror_reader import read_state, watch
from rewind.core.errors import IntegrityError
from rewind.core.offsets import OffsetRange, Ranges, merged, told, within
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.registry.database import reading, writing
from rewind.registry.mirrors import mirror_changes, mirror_log
from rewind.runtime.kafka.broker import Broker
from rewind.transforms.records import mirror_checks

SHOWN = 5


class History:
    """Reads the mirror of one topic for one pipeline."""

    def __init__(self, spark: SparkSession, settings: Settings, pipeline: Pipeline, topic_id: str) -> None:
        """Keep the places."""
        self._spark = spark
        self._settings = settings
        self._pipeline = pipeline
        self._topic_id = topic_id
        self.path = table.table_path(settings, pipeline.source_topic)
        self._watch = watch(settings, pipeline.source_topic)

    def check(self, version: int) -> None:
        """Check that a version of the mirror can be read to its end.

        Raises:
            IntegrityError: It cannot: a VACUUM took files of it.
        """
        table.check_readable(self._spark, self.path, version)

    def read(
        self, ranges: Ranges, version: int, accepted: Mapping[int, Sequence[OffsetRange]]
    ) -> tuple[DataFrame, int, int]:
        """Return the records of some offsets, each once; how many there are; and how many repeats were left out.

        Raises:
            IntegrityError: Records are missing that no legal or accepted hole explains, or stand twice with
                different bytes; or somebody rewrote or restored the table before that version.
            QuarantineError: The table is another than the one that was mirrored into.
        """
        self.refuse_void(ranges, version)
        rows = table.read(self._spark, self.path, version).where(table.in_ranges(ranges, self._topic_id))
        found, repeats = self._counted(rows, ranges, accepted)
        return rows.dropDuplicates(["partition", "offset"]) if repeats else rows, found, repeats

    def refuse_void(self, ranges: Ranges, version: int) -> None:
        """Check that a version can be believed to hold what its commit records say of some offsets.

        Raises:
            IntegrityError: It cannot.
            QuarantineError: The table is another than the one that was mirrored into.
        """
        topic = self._pipeline.source_topic
        self._watch.look(self._spark)
        with reading(self._settings.registry_url) as connection:
            void = mirror_changes.void(connection, topic, self._topic_id, self._watch.changes, version)
        parts = [told(p, part) for p, r in ranges.items() for part in within(void.get(p, ()), [r])]
        if parts:
            done = mirror_changes.said(self._watch.changes, version)
            raise IntegrityError(
                f"mirror of {topic}: {done}. Version {version} no longer surely holds {'; '.join(parts)}: RESTORE it "
                "to the version before, abort, and plan again"
            )

    def _counted(
        self, rows: DataFrame, ranges: Ranges, accepted: Mapping[int, Sequence[OffsetRange]]
    ) -> tuple[int, int]:
        # A record that was deleted on purpose stands in a version from before that, and is missing from a later one.
        found = mirror_checks.counts(rows, ~table.at_any(self._deleted())).collect()
        offsets = {row["partition"]: row["certain"] for row in found}
        repeats = sum(row["rows"] - row["offsets"] for row in found)
        if repeats:
            self._refuse_conflicts(rows)
        holes = self._known_holes(ranges, accepted)
        expected = {p: len(r) - holes[p] for p, r in ranges.items()}
        short = {p: (offsets.get(p, 0), n) for p, n in expected.items() if offsets.get(p, 0) != n}
        if short:
            raise IntegrityError(f"the mirror lacks or adds records (found, recorded per partition: {short})")
        return sum(row["offsets"] for row in found), repeats

    def _deleted(self) -> dict[int, list[OffsetRange]]:
        with writing(self._settings.registry_url) as connection:
            return mirror_log.deletions(connection, self._pipeline.source_topic, self._topic_id)

    def _known_holes(self, ranges: Ranges, accepted: Mapping[int, Sequence[OffsetRange]]) -> dict[int, int]:
        """Return how many offsets of each range hold no record, by the commit records and what was accepted."""
        topic = Broker(self._settings).topic(self._pipeline.source_topic)
        state = read_state(self._settings, topic, self._pipeline.transactional) if topic is not None else None
        known = state.holes if state is not None else {}
        parts = {p: [*known.get(p, ()), *accepted.get(p, ())] for p in ranges}
        return {p: sum(map(len, merged(hole.overlap(r) for hole in parts[p]))) for p, r in ranges.items()}

    def _refuse_conflicts(self, rows: DataFrame) -> None:
        days = F.sort_array(F.collect_set("ingest_date")).alias("days")
        grouped = rows.groupBy("partition", "offset").agg(
            F.count_distinct(mirror_checks.content()).alias("contents"), days
        )
        bad = grouped.where(F.col("contents") > 1).orderBy("partition", "offset").limit(SHOWN).collect()
        if bad:
            text = "; ".join(f"partition {r['partition']} offset {r['offset']} ingested on {r['days']}" for r in bad)
            raise IntegrityError(f"the mirror holds different bytes for one offset: {text}. Was the topic recreated?")
