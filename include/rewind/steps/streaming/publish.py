"""Publish what the live job writes: its own output, merged into the pipeline's shared one by version.

The first time under an epoch the job's whole output is merged, with tombstones for keys that it lacks, then what each
batch added. A driver that dies on the way does it again: versions make a repeat harmless.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType
from pyspark.storagelevel import StorageLevel

from rewind.adapters import staged as staging
from rewind.adapters import table_watch
from rewind.adapters.shared_table import SharedTable
from rewind.adapters.shared_topic import SharedTopic
from rewind.adapters.staged import Staged
from rewind.adapters.table_watch import Watch
from rewind.core import coordinates
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import Generation
from rewind.core.offsets import Vector
from rewind.core.pipeline import DELTA, TOMBSTONE, Pipeline
from rewind.core.settings import Settings
from rewind.registry import manifest, publications, shared_outputs
from rewind.registry.database import reading, writing
from rewind.registry.publications import Counts, Publication
from rewind.registry.shared_outputs import SharedOutput
from rewind.runtime import tables
from rewind.runtime.drivers.guard import Guard
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import failures
from rewind.transforms.records import merging
from rewind.transforms.records.merging import Begin
from rewind.transforms.values import parsing

log = logging.getLogger(__name__)


class Target(Protocol):
    """A shared output, of either kind."""

    def held(self) -> DataFrame:
        """Return the versioned rows that it has, one a key."""

    def place(self) -> Vector:
        """Return where it ends now; empty for a table."""

    def merge(self, rows: DataFrame, since: Vector | None) -> Counts:
        """Merge versioned rows, one a key."""


class Publisher:
    """What a driver does for readers of the shared output while its job is live."""

    def __init__(
        self, spark: SparkSession, settings: Settings, generation: Generation, pipeline: Pipeline, guard: Guard
    ) -> None:
        """Find the shared output.

        Raises:
            RefusedError: It is gone, or another stands under its name.
        """
        self._spark = spark
        self._settings = settings
        self._generation = generation
        self._pipeline = pipeline
        self._guard = guard
        self._target = _target(spark, settings, generation)
        self._watches = _watches(settings, generation)

    def publish(self, through: int) -> None:
        """Publish all that the job has committed and not published; nothing while it is not live, or has to stop.

        Args:
            through: The newest batch that is committed.

        Raises:
            LeaseLostError: A newer token was handed out.
            QuarantineError: Somebody restored, emptied or rewrote the job's table or the shared one.
        """
        try:
            self._publish(through)
        except Exception as thrown:
            error = failures.typed(thrown)
            if not isinstance(error, RetryError):
                raise
            # The stream goes on, and the next attempt takes along what this one left.
            log.warning("%s: nothing published: %s", self._generation.job_id, error)

    def _publish(self, through: int) -> None:
        token, job = self._guard.token, self._generation.job_id
        with side_effect("publication.begin"), writing(self._settings.registry_url) as connection:
            begun = publications.begin(connection, self._generation.pipeline, job, token, through)
        if begun is None:
            return
        for watch in self._watches:
            watch.check(self._spark)
        made = staging.read(self._spark, self._settings, self._generation, self._pipeline, begun, through)
        try:
            counts = self._merged(begun, made, through)
        finally:
            made.close()
        place = self._target.place()
        with side_effect("publication.record"), writing(self._settings.registry_url) as connection:
            publications.record(connection, begun, token, through, made.unread, place, counts)
        log.info("published up to batch %d at epoch %d: %s", through, begun.epoch, counts)

    def _merged(self, begun: Publication, made: Staged, through: int) -> Counts:
        rows = merging.newest(merging.restamped(made.rows, begun.epoch))
        if begun.batch is not None:
            with side_effect("shared.merge"):
                return self._target.merge(rows, begun.shared)
        gone = self._gone(made, coordinates.version(begun.epoch, through)).persist(StorageLevel.DISK_ONLY)
        vanished = gone.count()
        with side_effect("shared.merge"):
            counts = self._target.merge(rows.unionByName(gone), None)
        gone.unpersist()
        return replace(counts, vanished=vanished)

    def _gone(self, made: Staged, version: str) -> DataFrame:
        held = self._target.held()
        if self._pipeline.vanished != TOMBSTONE or not made.whole:
            # Where the job's own output lost records, what it lacks tells nothing.
            return held.limit(0)
        job = self._generation
        begin = Begin(job.topic_id, job.start, job.trusted_from)
        return merging.tombstones(held, made.keys.distinct(), begin, _starts(self._pipeline), version)


def _starts(pipeline: Pipeline) -> Column:
    """Return the first instant of a result, in milliseconds since 1970."""
    if pipeline.output_format == DELTA:
        return F.unix_millis(F.col("content")[pipeline.result_starts])
    field = StructType([StructField(pipeline.result_starts, TimestampType())])
    return F.unix_millis(F.from_json(F.col("content").cast("string"), field)[pipeline.result_starts])


def _target(spark: SparkSession, settings: Settings, generation: Generation) -> Target:
    with reading(settings.registry_url) as connection:
        found = shared_outputs.find(connection, generation.pipeline)
    if found is None or found.resource_id is None or _id_of(settings, found) != found.resource_id:
        what = "the shared output" if found is None else found.name
        problem = f"{what} of {generation.pipeline} is gone, or another stands under its name"
        raise RefusedError("output.shared", problem, "Restore it, or declare another pipeline and deploy that")
    if found.kind == manifest.TABLE:
        schema = parsing.declared(generation.output_schema)
        return SharedTable(spark, str(tables.path(settings, found.name)), schema)
    return SharedTopic(spark, settings, found.name)


def _watches(settings: Settings, generation: Generation) -> list[Watch]:
    if generation.declared.output_format != DELTA:
        return []
    with reading(settings.registry_url) as connection:
        found = shared_outputs.find(connection, generation.pipeline)
    assert found is not None
    mine = table_watch.of_output(settings, generation, generation.output_topic)
    return [mine, table_watch.of_shared(settings, found.name)]


def _id_of(settings: Settings, found: SharedOutput) -> str | None:
    if found.kind == manifest.TABLE:
        return tables.id_of(settings, found.name)
    topic = Broker(settings).topic(found.name)
    return None if topic is None else topic.id
