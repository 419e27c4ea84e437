"""The Spark session of a job."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from rewind.core.model import Generation
from rewind.core.pipeline import Pipeline
from rewind.transforms import spans

SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""With it a query whose sources have names can go on with another source and the same state."""

log = logging.getLogger(__name__)

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Nobody asks how many rows a state has, and the count costs a read before each write.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    SOURCE_EVOLUTION: "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
    # Else a restart on a batch that was not committed dies in Spark 4.2 (`None.get` in OfflineStateRepartitionUtils).
    "spark.sql.streaming.checkUnfinishedRepartitionOnRestart": "false",
}
"""Settings of a query with state. Those of the state store are kept by its checkpoint from its first batch on."""


def session(name: str, time_zone: str) -> SparkSession:
    """Return the session of a main: the settings come from the submit, the time zone from the frozen configuration."""
    made: SparkSession = SparkSession.builder.appName(name).getOrCreate()
    made.conf.set("spark.sql.session.timeZone", time_zone)
    log.info("spark application %s", made.sparkContext.applicationId)
    # A file that is gone is a loss, whatever an installation's defaults say.
    made.conf.set("spark.sql.files.ignoreMissingFiles", "false")
    # A udf() of a pipeline runs without pyarrow, which drivers do not have.
    made.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    return made


def beside(spark: SparkSession, pipeline: Pipeline, source_partitions: int, state_partitions: int) -> SparkSession:
    """Return a session beside another for a query with state: what that needs is set in this one alone.

    Args:
        spark: The other.
        pipeline: The pipeline of the query.
        source_partitions: Partitions of its source when the generation was made.
        state_partitions: Partitions of its state.
    """
    made = spark.newSession()
    chosen = {
        "spark.sql.session.timeZone": pipeline.session_time_zone,
        "spark.sql.shuffle.partitions": str(state_partitions),
        spans.PARTITIONS: str(source_partitions),
    }
    for name, value in {**_STATE, **chosen}.items():
        made.conf.set(name, value)
    return made


def session_of(generation: Generation, pipeline: Pipeline) -> SparkSession:
    """Return the session of a generation's query: its frozen zone and, for one with state, what its state needs."""
    made = session(generation.job_id, pipeline.session_time_zone)
    if pipeline.stateful:
        for name, value in _STATE.items():
            made.conf.set(name, value)
        made.conf.set(spans.PARTITIONS, str(generation.state_partitions))
    return made
