"""Parsed records through logic to the rows of a Kafka sink, with the headers that readers rely on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from rewind.core import coordinates
from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.transforms import parsing
from rewind.transforms.parsing import REASON, REJECT, SRC

Logic = Callable[[DataFrame], DataFrame]

SINK_COLUMNS = ("topic", "key", "value", "headers")
_ORDER = ("source_partition", "source_offset")
_HEADERS = "array<struct<key:string,value:binary>>"
_PLAIN_PLANS = frozenset({"Project", "LocalRelation", "LogicalRDD", "SubqueryAlias"})
_STATEFUL_PLANS = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "TransformWithStateInPySpark",
        "Window",
    }
)


@dataclass(frozen=True)
class Stamp:
    """What a job writes on each of its rows.

    Attributes:
        job_id: The job.
        token: Its lease's token.
        topic_id: Id of its source topic.
        output_topic: Where rows go.
        dead_letter_topic: Where rejects go.
        repair: Number of the repair, 0 for a generation.
    """

    job_id: str
    token: int
    topic_id: str
    output_topic: str
    dead_letter_topic: str
    repair: int = 0


@dataclass(frozen=True)
class Contract:
    """What logic was seen to do with an empty frame.

    Attributes:
        schema: The value columns it returns.
        row_wise: Whether it only projects: then every record, rejected or not, can pass it in one scan.
    """

    schema: StructType
    row_wise: bool


def examine(logic: Logic, pipeline: Pipeline, empty: DataFrame) -> Contract:
    """Run logic on an empty frame of source records and return its contract.

    Raises:
        RefusedError: It loses `_src`, keeps state in a pipeline declared stateless, or lacks a key column.
    """
    columns = parsing.parse(empty, parsing.declared(pipeline.schema), pipeline.required).drop(REASON)
    before = _plans(columns)
    result = logic(columns)
    if SRC not in result.columns:
        raise RefusedError("logic", f"{pipeline.name}: transform() loses {SRC}", f"Select {SRC} in what it returns")
    added = [name for name in _plans(result) if name not in before or name in _STATEFUL_PLANS]
    stateful = sorted(set(added) & _STATEFUL_PLANS)
    if stateful and not pipeline.stateful:
        cure = "Declare stateful: true, or do without"
        raise RefusedError("logic", f"{pipeline.name} is declared stateless but uses {', '.join(stateful)}", cure)
    values = [field for field in result.schema.fields if field.name not in (SRC, REJECT)]
    lacking = sorted(set(pipeline.output_key) - {field.name for field in values})
    if lacking:
        raise RefusedError("output.key", f"transform() returns no {', '.join(lacking)}", "Return them, or mend the key")
    return Contract(StructType(values), set(_plans(result)) <= _PLAIN_PLANS)


def encode(records: DataFrame, logic: Logic, pipeline: Pipeline, contract: Contract, stamp: Stamp) -> DataFrame:
    """Return the sink rows of source records: results, tombstones and dead letters, by the topic column.

    Rows of one source partition keep the order of their offsets where the records had it and the contract is
    row-wise; else they are brought into it by one sort a source partition.

    Args:
        records: Columns `parsing.SOURCE_COLUMNS`.
        logic: `transform` of the pipeline.
        pipeline: The pipeline.
        contract: What `examine` said of the logic.
        stamp: What to write on each row.

    Returns:
        Columns `SINK_COLUMNS`.
    """
    parsed = parsing.parse(records, parsing.declared(pipeline.schema), pipeline.required)
    if contract.row_wise:
        return _rows(_carried(parsed, logic), pipeline, contract, stamp).select(*SINK_COLUMNS)
    good = (F.col(REASON).isNull()) & F.col(f"{SRC}.value").isNotNull()
    results = _rows(_reasoned(logic(parsed.where(good).drop(REASON))), pipeline, contract, stamp)
    others = _rows(parsed.where(~good), pipeline, contract, stamp)
    return in_source_order(results.unionByName(others), *_ORDER).select(*SINK_COLUMNS)


def in_source_order(rows: DataFrame, partition: str, offset: str) -> DataFrame:
    """Return the rows with each source partition whole in one task, in the order of its offsets."""
    return rows.repartition(F.col(partition)).sortWithinPartitions(partition, offset)


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
    """Return sink rows with their source order; a frame without value columns holds tombstones and rejects only."""
    names = [name for name in contract.schema.names if name in parsed.columns]
    numbered = _numbered(parsed, names) if pipeline.several_rows and names else parsed.withColumn("_row", F.lit(0))
    dead, tombstone = F.col(REASON).isNotNull(), F.col(f"{SRC}.value").isNull()
    # The schema's own column list: a JSON text of fewer or other columns would not be the declared output.
    text = F.to_json(F.struct(*names)).cast("binary") if len(names) == len(contract.schema.names) else F.lit(None)
    value = (
        F.when(tombstone, F.lit(None).cast("binary")).when(dead, F.col(f"{SRC}.value")).otherwise(text.cast("binary"))
    )
    key = _key(pipeline, names)
    return numbered.select(
        F.when(dead, stamp.dead_letter_topic).otherwise(stamp.output_topic).alias("topic"),
        F.when(dead | tombstone, F.col(f"{SRC}.key")).otherwise(key).alias("key"),
        value.alias("value"),
        _headers(stamp).alias("headers"),
        F.col(f"{SRC}.partition").alias(_ORDER[0]),
        F.col(f"{SRC}.offset").alias(_ORDER[1]),
    )


def _key(pipeline: Pipeline, names: Sequence[str]) -> Column:
    if not pipeline.output_key or not set(pipeline.output_key) <= set(names):
        return F.col(f"{SRC}.key")
    return F.to_json(F.struct(*pipeline.output_key)).cast("binary")


def _numbered(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    # The text of the row decides its number: a retry may see the rows of a record in another order.
    window = Window.partitionBy(f"{SRC}.partition", f"{SRC}.offset").orderBy(F.to_json(F.struct(*names)))
    return rows.withColumn("_row", F.row_number().over(window) - 1)


def _headers(stamp: Stamp) -> Column:
    place = F.concat_ws(":", F.lit(stamp.topic_id), F.col(f"{SRC}.partition"), F.col(f"{SRC}.offset"))
    source = F.when(F.col("_row") > 0, F.concat_ws(":", place, F.col("_row"))).otherwise(place)
    pairs = [
        (coordinates.JOB, F.lit(stamp.job_id)),
        (coordinates.TOKEN, F.lit(str(stamp.token))),
        (coordinates.SOURCE, source),
    ]
    if stamp.repair:
        pairs.append((coordinates.REPAIR, F.lit(str(stamp.repair))))
    always = F.array(*(_header(name, value) for name, value in pairs)).cast(_HEADERS)
    reason = F.array(_header(coordinates.REASON, F.col(REASON))).cast(_HEADERS)
    return F.when(F.col(REASON).isNotNull(), F.concat(always, reason)).otherwise(always)


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _plans(frame: DataFrame) -> list[str]:
    """Return the node names of a frame's analysed plan, children last."""
    found, todo = [], [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001 - the only way to a plan
    while todo:
        node = todo.pop()
        found.append(str(node.nodeName()))
        children = node.children()
        todo += [children.apply(i) for i in range(children.size())]
    return found
