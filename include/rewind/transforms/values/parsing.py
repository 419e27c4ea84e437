"""Source records to parsed columns, with a reason for each record that is rejected before logic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rewind.core.pipeline import Pipeline
from rewind.transforms.values import exact_reading
from rewind.transforms.values.quoting import column

SOURCE_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
"""Columns of a source record, the same from Kafka and from the mirror."""

SRC = "_src"
"""Reserved column: where a row came from, with the record's own key and value for the engine."""
REASON = "_reason"
"""Reserved column: why the engine rejects the record, null when it does not."""
REJECT = "_reject"
"""Reserved column that logic may add: why it rejects the row, null when it does not."""

UNREADABLE = "malformed, or a value of another type"
_CORRUPT, _TEXT, _PARSED, _SOUND = "_corrupt", "_text", "_parsed", "_sound"


def parse(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Return `_src`, `_reason` and the parsed columns of each record.

    A null value is a tombstone: its parsed columns and its reason are null. A value is rejected when it is not
    UTF-8, no JSON object, breaks off, has bytes behind it, holds a value of another type than declared or one that its
    type cannot hold (docs/values.md), or lacks a required column. Of a field that stands twice the last one counts; a
    field that is not declared is ignored.

    Args:
        records: Columns `SOURCE_COLUMNS`.
        pipeline: Declares the columns, which of them must not be null, and whether values are read exactly.
    """
    schema = declared(pipeline.schema)
    source = F.struct("topic", "partition", "offset", "timestamp", "key", "value").alias(SRC)
    # A projection a step: what several columns need of the one before is computed once.
    valid = F.col("value").cast("string")
    read = records.select(source, F.when(F.is_valid_utf8(valid), valid).alias(_TEXT))
    return _exact(read, schema, pipeline.required) if pipeline.exact else _lenient(read, schema, pipeline.required)


def _exact(read: DataFrame, schema: StructType, required: tuple[str, ...]) -> DataFrame:
    text, names = F.col(_TEXT), schema.names
    parsed = read.withColumn(_PARSED, exact_reading.read(text, schema))
    sound = exact_reading.sound(F.col(_PARSED)).alias(_SOUND)
    record = parsed.select(SRC, _TEXT, sound, exact_reading.record(F.col(_PARSED)).alias(_PARSED))
    values = (exact_reading.value(column(f.name, _PARSED), f.dataType).alias(f.name) for f in schema.fields)
    made = record.select(SRC, _TEXT, _SOUND, _PARSED, *values)
    reason = _of_bytes(text).when(~F.col(_SOUND), UNREADABLE)
    reason = reason.when(exact_reading.half_a_character(text), "holds half of a surrogate pair")
    for name in required:
        reason = reason.when(column(name).isNull(), f"{name} is missing")
    there = F.col(_PARSED).isNotNull()
    found = [
        problem
        for f in schema.fields
        for problem in exact_reading.of_field(column(f.name, _PARSED), f, f.name, text, there, column(f.name))
    ]
    return made.select(SRC, reason.otherwise(exact_reading.first_problem(found)).alias(REASON), *map(column, names))


def _lenient(read: DataFrame, schema: StructType, required: tuple[str, ...]) -> DataFrame:
    text, parsed = F.col(_TEXT), F.col(_PARSED)
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    record = read.withColumn(_PARSED, F.from_json(text, with_corrupt, options))
    reason = _of_bytes(text).when(parsed.isNull() | parsed[_CORRUPT].isNotNull(), UNREADABLE)
    for name in required:
        reason = reason.when(parsed[name].isNull(), f"{name} is missing")
    fields = (column(name, _PARSED).alias(name) for name in schema.names)
    return record.select(SRC, reason.alias(REASON), *fields)


def declared(ddl: str) -> StructType:
    """Return the schema of a DDL text."""
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType)
    return made


def _of_bytes(text: Column) -> Column:
    value = F.col(f"{SRC}.value")
    reason = F.when(value.isNull(), F.lit(None).cast("string"))
    reason = reason.when(F.length(value) == 0, "empty value")
    reason = reason.when(text.isNull(), "not UTF-8")
    begins = text.startswith("{") | F.ltrim(text, F.lit(" \n\r\t")).startswith("{")
    return reason.when(~begins, "not a JSON object")
