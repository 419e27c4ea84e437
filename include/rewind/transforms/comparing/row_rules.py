"""Rows that a pipeline expects to come, to go, or to move into or out of the dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline, RowRule
from rewind.transforms.records.outputs import DEAD

_LETTER = ("reason", "record")
"""Columns beside `live` and `candidate` that a predicate may ask: texts of the dead letter."""


def applied(classed: DataFrame, rules: Sequence[RowRule], changes: Mapping[str, str], expected: str) -> DataFrame:
    """Return pairs of rows, those that a rule expects as such, with the rule's label in place of differing fields.

    Args:
        classed: Pairs with `l`, `c`, `live`, `candidate`, `class` and `fields` (`compare.with_class`).
        rules: The first one that is met counts.
        changes: What became of a row (`RowRule.change`), by its class.
        expected: The class of what is expected.
    """
    if not rules:
        return classed
    told = classed.withColumns(
        {name: _of_letter(text) for name, text in zip(_LETTER, ("reason", "value"), strict=True)}
    )
    classes = {change: name for name, change in changes.items()}
    met = F.coalesce(*(F.when(_met(rule, classes[rule.change]), F.lit(rule.label)) for rule in rules))
    named = told.withColumn("met", met)
    kept = {
        "class": F.when(F.col("met").isNotNull(), expected).otherwise(F.col("class")),
        "fields": F.when(F.col("met").isNotNull(), F.array("met")).otherwise(F.col("fields")),
    }
    return named.withColumns(kept).drop("met", *_LETTER)


def check(spark: SparkSession, pipeline: Pipeline, live: StructType, candidate: StructType) -> None:
    """Check that the predicates of a pipeline's expected changes can be asked of both outputs.

    Raises:
        RefusedError: One is no SQL, names a column that there is not, or is no condition.
    """
    letter = [StructField(name, StringType()) for name in _LETTER]
    pair = [StructField("live", live), StructField("candidate", candidate)]
    changes = [(f"compare.expected, {change.column}", change.rule) for change in pipeline.expected if change.rule]
    rows = [(f"compare.rows.{number}", rule.rule) for number, rule in enumerate(pipeline.row_rules)]
    for declared, columns in ((changes, pair), (rows, pair + letter)):
        empty = spark.createDataFrame([], StructType(columns))
        for field, rule in declared:
            _check(field, rule, empty)


def _check(field: str, rule: str, empty: DataFrame) -> None:
    try:
        kind = empty.select(F.expr(rule)).schema.fields[0].dataType
    except PySparkException as error:
        told = str(error).partition("\n")[0]
        cure = f"Fix it; it may ask {', '.join(empty.columns)}, the columns of the first two by live.<column>"
        raise RefusedError(field, f"{rule!r} cannot be asked of both outputs: {told}", cure) from None
    if not isinstance(kind, BooleanType):
        raise RefusedError(field, f"{rule!r} is of type {kind.simpleString()}", "Make it a condition")


def _met(rule: RowRule, name: str) -> Column:
    return (F.col("class") == name) & F.expr(rule.rule)


def _of_letter(text: str) -> Column:
    sides = [F.when(F.col(f"{side}.kind") == DEAD, F.col(f"{side}.{text}").cast("string")) for side in ("l", "c")]
    return F.coalesce(*sides)
