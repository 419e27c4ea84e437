"""Functions that a pipeline declares are tried on real records, in two cuts, before anything is made (ADR 0034)."""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import kafka
from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.core.settings import Settings
from rewind.runtime.kafka.broker import Broker
from rewind.steps.generation.logic import empty_records, load_logic
from rewind.transforms.logic import contract
from rewind.transforms.logic.contract import Logic
from rewind.transforms.records import encoding
from rewind.transforms.records.encoding import SINK_COLUMNS
from rewind.transforms.records.headers import Stamp

log = logging.getLogger(__name__)

RECORDS = 500
"""Newest offsets of each partition that are tried."""
_STAMP = Stamp("trial", 0, "trial", "rows", "dead letters")


def check(spark: SparkSession, settings: Settings, pipeline: Pipeline) -> None:
    """Check that declared functions give the newest records the same rows in one batch and in two.

    What keeps state does not give the same in two batches, and is not tried.

    Raises:
        RefusedError: They do not.
    """
    if not pipeline.functions or pipeline.stateful:
        return
    topic = Broker(settings, pipeline.isolation).topic(pipeline.source_topic)
    if topic is None:
        # Whoever plans or deploys says so.
        return
    start = {p: max(topic.earliest[p], end - RECORDS) for p, end in topic.latest.items()}
    if start == topic.latest:
        log.warning("%s has no records: the declared functions were not tried", topic.name)
        return
    read = kafka.read_range(spark, settings, topic.name, start, topic.latest, pipeline.isolation)
    compare(kafka.as_records(read), load_logic(pipeline), pipeline)


def compare(records: DataFrame, logic: Logic, pipeline: Pipeline) -> None:
    """Check that a logic gives records the same rows in one batch and in two.

    Raises:
        RefusedError: It does not.
    """
    made = contract.examine(logic, pipeline, empty_records(records.sparkSession))

    def rows(batch: DataFrame) -> DataFrame:
        return encoding.encode(batch, logic, pipeline, made, _STAMP).select(*SINK_COLUMNS)

    odd = F.col("offset") % 2 == 1
    whole, parts = rows(records), rows(records.where(odd)).unionByName(rows(records.where(~odd)))
    if not (whole.exceptAll(parts).isEmpty() and parts.exceptAll(whole).isEmpty()):
        problem = f"{', '.join(pipeline.functions)} of {pipeline.name} gave the same records other rows in two batches"
        raise RefusedError("functions", problem, "A declared function must answer from its arguments alone")
