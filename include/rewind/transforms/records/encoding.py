"""Parsed records through logic to the rows of a Kafka sink, with the headers that readers rely on."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from rewind.core import coordinates
from rewind.core.pipeline import Pipeline
from rewind.transforms.logic.contract import Contract, Logic
from rewind.transforms.records import headers
from rewind.transforms.records.headers import Stamp
from rewind.transforms.values import json_text, parsing
from rewind.transforms.values.parsing import REASON, REJECT, SRC
from rewind.transforms.values.quoting import structure

SINK_COLUMNS = ("topic", "key", "value", "headers")
"""What a row is in Kafka."""
ROW_COLUMNS = (*SINK_COLUMNS, "fields")
"""The same and `fields`, the typed columns of a result, all null in a dead letter or tombstone."""
TASKS_A_CORE = 4
"""Among how many tasks a core source partitions are spread: the more, the more evenly; an empty one costs little."""
_ORDER = ("source_partition", "source_offset")


def encode(records: DataFrame, logic: Logic, pipeline: Pipeline, contract: Contract, stamp: Stamp) -> DataFrame:
    """Return the rows of source records: results, tombstones and dead letters, by the topic column.

    Rows of one source partition keep the order of their offsets where the records had it and the contract is
    row-wise; else they are brought into it by one sort a source partition.

    Args:
        records: Columns `transforms.values.parsing.SOURCE_COLUMNS`.
        logic: `transform` of the pipeline.
        pipeline: The pipeline.
        contract: What `examine` said of the logic.
        stamp: What to write on each row.

    Returns:
        Columns `ROW_COLUMNS`.
    """
    parsed = parsing.parse(records, pipeline)
    if contract.row_wise:
        return rows_of(_carried(parsed, logic), pipeline, contract, stamp)
    good = (F.col(REASON).isNull()) & F.col(f"{SRC}.value").isNotNull()
    results = _rows(_reasoned(logic(parsed.where(good).drop(REASON))), pipeline, contract, stamp)
    others = _rows(parsed.where(~good), pipeline, contract, stamp)
    return in_source_order(results.unionByName(others), *_ORDER).select(*ROW_COLUMNS)


def in_source_order(rows: DataFrame, partition: str, offset: str) -> DataFrame:
    """Return the rows with each source partition whole in one task, in the order of its offsets.

    By the number of the partition, not by its hash: two partitions of two would share a task as often as not.
    """
    tasks = TASKS_A_CORE * rows.sparkSession.sparkContext.defaultParallelism
    return rows.repartitionById(tasks, F.col(partition)).sortWithinPartitions(partition, offset)


def rows_of(parsed: DataFrame, pipeline: Pipeline, contract: Contract, stamp: Stamp) -> DataFrame:
    """Return the rows of a frame with `_src` and `_reason`; without value columns it holds tombstones and rejects.

    Returns:
        Columns `ROW_COLUMNS`.
    """
    return _rows(parsed, pipeline, contract, stamp).select(*ROW_COLUMNS)


def _carried(parsed: DataFrame, logic: Logic) -> DataFrame:
    # The engine's reason travels inside _src, which logic hands through.
    source = F.struct(f"{SRC}.*", F.col(REASON).alias("reason"))
    result = logic(parsed.withColumn(SRC, source).drop(REASON))
    own = F.col(REJECT) if REJECT in result.columns else F.lit(None).cast("string")
    tombstone = F.col(f"{SRC}.value").isNull()
    return result.withColumn(REASON, F.when(~tombstone, F.coalesce(F.col(f"{SRC}.reason"), own)))


def _reasoned(result: DataFrame) -> DataFrame:
    own = F.col(REJECT) if REJECT in result.columns else F.lit(None).cast("string")
    return result.withColumn(REASON, own)


def _rows(parsed: DataFrame, pipeline: Pipeline, contract: Contract, stamp: Stamp) -> DataFrame:
    """Return sink rows with their source order."""
    names = [name for name in contract.schema.names if name in parsed.columns]
    numbered = (
        _numbered(parsed, pipeline, contract)
        if pipeline.several_rows and names
        else parsed.withColumn("_row", F.lit(0))
    )
    dead, tombstone = F.col(REASON).isNotNull(), F.col(f"{SRC}.value").isNull()
    # The schema's own column list: a JSON text of fewer or other columns would not be the declared output.
    text = json_text.of_columns(contract.schema, pipeline.exact) if names == contract.schema.names else F.lit(None)
    value = (
        F.when(tombstone, F.lit(None).cast("binary")).when(dead, F.col(f"{SRC}.value")).otherwise(text.cast("binary"))
    )
    key = _key(pipeline, contract, names)
    nothing = F.lit(None).cast(contract.schema)
    fields = F.when(~(dead | tombstone), structure(names)) if names == contract.schema.names else nothing
    return numbered.select(
        F.when(dead, stamp.dead_letter_topic).otherwise(stamp.output_topic).alias("topic"),
        F.when(dead | tombstone, F.col(f"{SRC}.key")).otherwise(key).alias("key"),
        value.alias("value"),
        _headers(stamp).alias("headers"),
        fields.alias("fields"),
        F.col(f"{SRC}.partition").alias(_ORDER[0]),
        F.col(f"{SRC}.offset").alias(_ORDER[1]),
    )


def key_text(pipeline: Pipeline, contract: Contract) -> Column:
    """Return the declared output key as JSON, in bytes."""
    columns = [contract.schema[name] for name in pipeline.output_key]
    return json_text.of_columns(columns, pipeline.exact).cast("binary")


def _key(pipeline: Pipeline, contract: Contract, names: Sequence[str]) -> Column:
    if not pipeline.output_key or not set(pipeline.output_key) <= set(names):
        return F.col(f"{SRC}.key")
    return key_text(pipeline, contract)


def _numbered(rows: DataFrame, pipeline: Pipeline, contract: Contract) -> DataFrame:
    # The text of the row decides its number: a retry may see the rows of a record in another order.
    columns = [field for field in contract.schema if field.name in rows.columns]
    window = Window.partitionBy(f"{SRC}.partition", f"{SRC}.offset").orderBy(
        json_text.of_columns(columns, pipeline.exact)
    )
    return rows.withColumn("_row", F.row_number().over(window) - 1)


def _headers(stamp: Stamp) -> Column:
    place = headers.place(stamp)
    source = F.when(F.col("_row") > 0, F.concat_ws(":", place, F.col("_row"))).otherwise(place)
    pairs = [*headers.of_job(stamp), (coordinates.SOURCE, source)]
    if stamp.repair:
        pairs.append((coordinates.REPAIR, F.lit(str(stamp.repair))))
    return headers.written(pairs, F.col(REASON))
