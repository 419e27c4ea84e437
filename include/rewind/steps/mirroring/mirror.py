"""The mirror of a topic: every byte, each record once, with ranges and counts recorded per commit."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from rewind.adapters import checkpoint, delta_log, kafka
from rewind.adapters import mirror as table
from rewind.adapters.delta_log import LogEntry
from rewind.adapters.mirror_reader import watch
from rewind.adapters.session import session
from rewind.core import names
from rewind.core.crash import side_effect
from rewind.core.errors import IntegrityError, QuarantineError, RefusedError
from rewind.core.model import Topic
from rewind.core.offsets import OffsetRange, Ranges, Vector, between, starts
from rewind.core.settings import Settings
from rewind.core.table_changes import CHANGED, RESTORED, fallen, holds
from rewind.registry.database import reading, writing
from rewind.registry.mirrors import mirror_changes, mirror_log
from rewind.registry.mirrors.mirror_log import Commit
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.kafka.broker import Broker
from rewind.steps.mirroring import maintenance
from rewind.steps.streaming.driver import Driver, Source

TRIGGER = "10 seconds"
MAX_OFFSETS = 1_000_000

log = logging.getLogger(__name__)


def run(settings: Settings, topic_name: str) -> None:
    """Mirror a topic until the mirror is wished to drain.

    Raises:
        LeaseHeldError: Another mirror of the topic lives.
        RefusedError: The topic is not on the broker.
    """
    owner = names.mirror_owner(topic_name)
    with Guard(settings, owner) as guard:
        topic = Broker(settings).topic(topic_name)
        if topic is None:
            raise RefusedError("source.topic", f"{topic_name!r} is not on the broker", "Create it, or fix the name")
        # The zone decides no byte; dates of ingest are UTC.
        spark = session(owner, "UTC")
        writer = Writer(spark, settings, topic)
        source = Source(owner, topic_name, writer.checkpoint, group=owner)
        driver = Driver(settings, source, guard, spark)
        writer.catch_up()

        def write(records: DataFrame, batch: int) -> None:
            driver.gate()
            maintenance.between_batches(spark, settings, topic_name, datetime.now(UTC))
            writer.append(records, batch)

        start = checkpoint.first_offsets(spark, writer.checkpoint) or topic.earliest
        reader = kafka.stream_reader(spark, settings, topic_name, start, "read_committed", MAX_OFFSETS)

        def begin() -> StreamingQuery:
            streaming = reader.load().writeStream.foreachBatch(write).queryName(owner)
            return streaming.trigger(processingTime=TRIGGER).option("checkpointLocation", writer.checkpoint).start()

        driver.run(begin)


class Writer:
    """Appends batches to a mirror and records what each commit holds."""

    def __init__(self, spark: SparkSession, settings: Settings, topic: Topic) -> None:
        """Create the table unless it is there."""
        self._spark = spark
        self._settings = settings
        self._topic = topic
        self.path = table.table_path(settings, topic.name)
        self.checkpoint = table.checkpoint_path(settings, topic.name, topic.id)
        table.create(spark, self.path)
        self._watch = watch(settings, topic.name)
        self._checked = 0

    def append(self, records: DataFrame, batch: int) -> None:
        """Append one batch; tried again after a crash it lands once.

        Raises:
            IntegrityError: Nothing landed, and the table does not hold the batch from before either.
            QuarantineError: Somebody restored, emptied or rewrote the table, so that it lacks what was read before.
        """
        ranges = between(
            checkpoint.start_offsets(self._spark, self.checkpoint, batch),
            checkpoint.end_offsets(self._spark, self.checkpoint, batch) or {},
        )
        self._check(starts(ranges))
        body = {"topic_id": self._topic.id, "ranges": {str(p): [r.start, r.end] for p, r in ranges.items()}}
        day = datetime.now(UTC).date().isoformat()
        application = self._application()
        with side_effect("mirror.append"):
            table.append(
                kafka.as_records(records),
                self.path,
                self._topic.id,
                day,
                application=application,
                batch=batch,
                metadata=json.dumps(body),
            )
        landed = self.catch_up()
        if (application, batch) not in {entry.transaction for entry in landed} and not self._holds(ranges):
            raise IntegrityError(f"mirror of {self._topic.name}: batch {batch} did not land")

    def catch_up(self) -> list[LogEntry]:
        """Record all commits that the registry lacks, and return them."""
        with reading(self._settings.registry_url) as connection:
            last = mirror_log.newest_version(connection, self._topic.name)
        made = [delta_log.entry(self._spark, self.path, v) for v in delta_log.versions(self._spark, self.path, last)]
        for entry in made:
            if entry.transaction is not None and entry.metadata:
                self._record(entry)
        return made

    def _record(self, entry: LogEntry) -> None:
        body = json.loads(entry.metadata)
        ranges = {int(p): OffsetRange(*bounds) for p, bounds in body["ranges"].items()}
        short = {p: r for p, r in ranges.items() if len(r) != entry.counts.get(p, 0)}
        holes = holes_in(self._spark, self.path, entry.version, short, body["topic_id"]) if short else {}
        counts = {p: entry.counts.get(p, 0) for p in ranges}
        times = {p: bounds for p, bounds in entry.times.items() if p in ranges}
        made = Commit(entry.version, body["topic_id"], ranges, counts, holes, entry.bytes, times)
        with side_effect("mirror.record"), writing(self._settings.registry_url) as connection:
            mirror_log.record(connection, self._topic.name, made)

    def _check(self, start: Vector) -> None:
        """Check that what was mirrored up to a position can be believed to be there."""
        self._watch.look(self._spark)
        changes = self._watch.changes
        if len(changes) == self._checked:
            return
        with reading(self._settings.registry_url) as connection:
            problem = mirror_changes.problem(
                connection, self._topic.name, self._topic.id, changes, self._watch.version, start
            )
        if problem:
            raise QuarantineError(problem)
        self._checked = len(changes)

    def _application(self) -> str:
        return f"mirror-{self._topic.id}-{checkpoint.query_id(self._spark, self.checkpoint)}"

    def _holds(self, ranges: Ranges) -> bool:
        with reading(self._settings.registry_url) as connection:
            commits = mirror_log.commits(connection, self._topic.name, self._topic.id)
        gone = fallen(self._watch.changes, self._watch.version, (RESTORED, CHANGED))
        return any(commit.ranges == ranges and not holds(gone, commit.version) for commit in commits)


def holes_in(
    spark: SparkSession, path: str, version: int, ranges: Ranges, topic_id: str
) -> dict[int, list[OffsetRange]]:
    """Return the offsets in `ranges` at which a version of the mirror holds no record, per partition."""
    rows = table.read(spark, path, version).where(table.in_ranges(ranges, topic_id)).select("partition", "offset")
    inner = rows.withColumn("next", F.lead("offset").over(Window.partitionBy("partition").orderBy("offset")))
    gaps = inner.where(F.col("next") > F.col("offset") + 1).collect()
    edges = rows.groupBy("partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last")).collect()
    found: dict[int, list[OffsetRange]] = {p: [] for p in ranges}
    for row in gaps:
        found[row["partition"]].append(OffsetRange(row["offset"] + 1, row["next"]))
    seen: dict[int, Vector] = {row["partition"]: {0: row["first"], 1: row["last"] + 1} for row in edges}
    for p, wanted in ranges.items():
        first, end = (seen[p][0], seen[p][1]) if p in seen else (wanted.end, wanted.end)
        found[p] += [OffsetRange(wanted.start, first), OffsetRange(min(end, wanted.end), wanted.end)]
    return {p: sorted(part for part in parts if len(part)) for p, parts in found.items()}
