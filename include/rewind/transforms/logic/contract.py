"""What a pipeline's logic is seen to do: run on frames without records, before anything depends on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from rewind.core.errors import RefusedError
from rewind.core.pipeline import DELTA, UNBOUNDED, Pipeline
from rewind.core.times import parse_duration
from rewind.transforms.logic import column_rules, fitness, plans, row_wise
from rewind.transforms.values import parsing
from rewind.transforms.values.parsing import REASON, REJECT, SRC

Logic = Callable[[DataFrame], DataFrame]

CLOSES = "Say when the first result of a record closes, as in window(event_time, '10 minutes').end"
NO_EVENT_TIME = "EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE"
"""What Spark says of a watermark on a column of another type."""
ASKED_FOR_ROWS = "_LEGACY_ERROR_TEMP_3102"
"""What Spark says of a stream whose rows are asked for before it is started."""
_PLAIN_PLANS = frozenset({"Project", "LocalRelation", "LogicalRDD", "SubqueryAlias"})
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Contract:
    """What logic was seen to do with an empty frame.

    Attributes:
        schema: The value columns it returns.
        row_wise: Whether it only projects: then every record, rejected or not, can pass it in one scan.
        spanned: Whether a row's `_src` is a span (`spans.span`), not the coordinate of one record.
    """

    schema: StructType
    row_wise: bool
    spanned: bool = False


def examine(logic: Logic, pipeline: Pipeline, empty: DataFrame) -> Contract:
    """Run logic on an empty frame of source records and return its contract.

    Raises:
        RefusedError: It loses `_src`, keeps state in a pipeline declared stateless, depends on more than the record
            (docs/logic.md), lacks a key column or one that a rule is for, or breaks what a stateful pipeline declares.
    """
    if pipeline.exact:
        fitness.check(parsing.declared(pipeline.schema), "source.schema")
    # A frame of its own: what the engine does before is no part of the plan.
    columns = empty.sparkSession.createDataFrame([], parsing.parse(empty, pipeline).drop(REASON).schema)
    result = logic(columns)
    if SRC not in result.columns:
        raise RefusedError("logic", f"{pipeline.name}: transform() loses {SRC}", f"Select {SRC} in what it returns")
    used = set(plans.names(result))
    stateful = sorted(used & row_wise.STATE)
    if stateful and not pipeline.stateful:
        cure = "Declare stateful: true, or do without"
        raise RefusedError("logic", f"{pipeline.name} is declared stateless but uses {', '.join(stateful)}", cure)
    if pipeline.exact:
        _check_row_wise(pipeline, logic, columns, result)
    values = [field for field in result.schema.fields if field.name not in (SRC, REJECT)]
    if pipeline.exact:
        fitness.check(StructType(values), "logic", table=pipeline.output_format == DELTA)
    lacking = sorted(set(pipeline.output_key) - {field.name for field in values})
    if lacking:
        raise RefusedError("output.key", f"transform() returns no {', '.join(lacking)}", "Return them, or fix the key")
    column_rules.check(pipeline.rules, StructType(values))
    spanned = isinstance(result.schema[SRC].dataType, ArrayType)
    if pipeline.stateful:
        _check_stateful(pipeline, columns, result, spanned)
    return Contract(StructType(values), used <= _PLAIN_PLANS, spanned)


def _check_row_wise(pipeline: Pipeline, logic: Logic, columns: DataFrame, result: DataFrame) -> None:
    made = plans.read(result, columns)
    several, functions = pipeline.several_rows, pipeline.functions
    row_wise.check(pipeline.name, made, stateful=pipeline.stateful, several=several, functions=functions)
    if plans.read(logic(columns), columns) != made:
        problem = f"{pipeline.name}: transform() asks for something else each time that it is run"
        raise RefusedError("logic", problem, "Ask neither a clock nor chance in Python: the plan then holds the answer")


def _check_stateful(pipeline: Pipeline, columns: DataFrame, result: DataFrame, spanned: bool) -> None:
    for name, field in ((pipeline.result_starts, "output.starts"), (pipeline.result_ends, "output.ends")):
        kind = result.schema[name].dataType.typeName() if name in result.columns else "missing"
        if kind not in _TIMES:
            raise RefusedError(field, f"column {name} of transform() is {kind}", "Name a column that is a TIMESTAMP")
    if spanned and REJECT in result.columns:
        problem = f"{pipeline.name}: transform() rejects rows that many records went into"
        raise RefusedError("logic", problem, f"Leave out {REJECT}, or filter before the grouping")
    try:
        kind = columns.select(F.expr(pipeline.closes_at)).schema.fields[0].dataType.typeName()
    except PySparkException as error:
        raise RefusedError(
            "closes_at", f"{pipeline.closes_at!r} is not a valid SQL expression over the columns: {error}", CLOSES
        ) from None
    if kind not in _TIMES:
        raise RefusedError("closes_at", f"{pipeline.closes_at!r} is of type {kind}", CLOSES)


def watermark_delay(logic: Logic, pipeline: Pipeline, stream: DataFrame) -> timedelta | None:
    """Return by how much the logic's watermark lags behind event time, or None when it sets none.

    Args:
        logic: `transform` of the pipeline.
        pipeline: The pipeline.
        stream: A streaming frame of source records; only its plan is looked at.

    Raises:
        RefusedError: Without a watermark state grows for ever, which only an unbounded horizon allows; or the delay is
            longer than the horizon.
    """
    nodes = [
        node for node in plans.nodes(_streamed(logic, pipeline, stream)) if node.nodeName() == "EventTimeWatermark"
    ]
    jvm: Any = stream.sparkSession._jvm
    marks = jvm.org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark
    delay = max((timedelta(milliseconds=marks.getDelayMs(node.delay())) for node in nodes), default=None)
    if pipeline.state_horizon == UNBOUNDED:
        return delay
    if delay is None:
        problem = f"{pipeline.name} has a horizon of {pipeline.state_horizon}, and its logic no withWatermark()"
        raise RefusedError("state_horizon", problem, "Set a watermark, or declare state_horizon: unbounded")
    if not delay:
        problem = f"{pipeline.name} has a watermark without delay: of two records of one instant one may be late"
        raise RefusedError("logic", problem, "Give withWatermark() a delay, if only of a second")
    if delay > parse_duration(pipeline.state_horizon, "state_horizon"):
        problem = f"{pipeline.state_horizon} is shorter than the watermark's delay of {delay}"
        raise RefusedError("state_horizon", problem, "Declare the delay and the longest result together")
    return delay


def check_lazy(logic: Logic, pipeline: Pipeline, stream: DataFrame) -> None:
    """Check that logic only says what is to be done with records.

    Args:
        logic: `transform` of the pipeline.
        pipeline: The pipeline.
        stream: A streaming frame of source records, which has no rows yet.

    Raises:
        RefusedError: It asks for rows.
    """
    _streamed(logic, pipeline, stream)


def state_shape(logic: Logic, pipeline: Pipeline, stream: DataFrame) -> list[str]:
    """Return what state a logic keeps, as text: its operators from source to sink, each with its columns in order.

    State that was kept by one shape means nothing to another (Spark refuses some of them, and misreads others).

    Args:
        logic: `transform` of the pipeline.
        pipeline: The pipeline.
        stream: A streaming frame of source records; only its plan is looked at.
    """
    kept = [
        node
        for node in reversed(plans.nodes(_streamed(logic, pipeline, stream)))
        if str(node.nodeName()) in row_wise.STATE
    ]
    return [_shape(node) for node in kept]


def _streamed(logic: Logic, pipeline: Pipeline, stream: DataFrame) -> DataFrame:
    try:
        return logic(parsing.parse(stream, pipeline).drop(REASON))
    except AnalysisException as error:
        if error.getCondition() == ASKED_FOR_ROWS:
            problem = f"{pipeline.name}: transform() asks for rows (count(), collect(), ...): it sees one batch of them"
            raise RefusedError("logic", problem, "Leave it to Spark to run what transform() returns") from None
        if error.getCondition() != NO_EVENT_TIME:
            raise
        problem = f"{pipeline.name}: withWatermark() is given a column that is no TIMESTAMP: {error.getMessage()}"
        raise RefusedError("source.schema", problem, "Declare the column TIMESTAMP; a TIMESTAMP_NTZ is none") from None


def _shape(node: Any) -> str:
    name = str(node.nodeName())
    if name.startswith("Deduplicate"):
        keys = node.keys()
        columns = ", ".join(str(keys.apply(i).name()) for i in range(keys.size()))
    else:
        columns = str(node.schema().simpleString())
    return f"{name} {columns}"
