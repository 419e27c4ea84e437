"""Source records to parsed columns, with a reason for each record that is rejected before logic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rewind.core.pipeline import Pipeline
from rewind.transforms import exact_reading
from rewind.transforms.quoting import column

SOURCE_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
"""Columns of a source record, the same from Kafka and from the mirror."""

SRC = "_src"
"""Reserved column: where a row came from, with the record's own key and value for the engine."""
REASON = "_reason"
"""Reserved column: why the engine rejects the record, null when it does not."""
REJECT = "_reject"
"""Reserved column that logic may add: why it rejects the row, null when it does not."""

_CORRUPT = "_corrupt"


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
    text = F.col("value").cast("string")
    # A valid UTF-8 check comes first: a cast would merge other bytes into replacement characters.
    usable = F.when(F.is_valid_utf8(text), text)
    source = F.struct("topic", "partition", "offset", "timestamp", "key", "value").alias(SRC)
    if pipeline.exact:
        read = records.withColumn("_parsed", exact_reading.read(usable, schema))
        # A projection of its own: the record is taken out of its wrapping once.
        read = read.withColumn("_sound", exact_reading.whole(F.col("_parsed"), usable))
        read = read.withColumn("_parsed", exact_reading.record(F.col("_parsed")))
        fields = [exact_reading.value(column(f.name, "_parsed"), f.dataType).alias(f.name) for f in schema.fields]
        reason = _exact_reason(text, schema, pipeline.required)
    else:
        with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        read = records.withColumn("_parsed", F.from_json(usable, with_corrupt, options))
        fields = [column(field.name, "_parsed").alias(field.name) for field in schema.fields]
        reason = _reason(text, pipeline.required)
    return read.select(source, reason.alias(REASON), *fields)


def declared(ddl: str) -> StructType:
    """Return the schema of a DDL text."""
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType)
    return made


def _exact_reason(text: Column, schema: StructType, required: tuple[str, ...]) -> Column:
    record = F.col("_parsed")
    reason = _of_bytes(text).when(~F.col("_sound"), "malformed, or a value of another type")
    reason = reason.when(exact_reading.half_a_character(text), "holds half of a surrogate pair")
    for name in required:
        reason = reason.when(record[name].isNull(), f"{name} is missing")
    return reason.otherwise(exact_reading.first_problem(list(exact_reading.problems(record, schema, "", text))))


def _reason(text: Column, required: tuple[str, ...]) -> Column:
    parsed = F.col("_parsed")
    unread = parsed.isNull() | parsed[_CORRUPT].isNotNull()
    reason = _of_bytes(text).when(unread, "malformed, or a value of another type")
    for name in required:
        reason = reason.when(parsed[name].isNull(), f"{name} is missing")
    return reason


def _of_bytes(text: Column) -> Column:
    value = F.col("value")
    reason = F.when(value.isNull(), F.lit(None).cast("string"))
    reason = reason.when(F.length(value) == 0, "empty value")
    reason = reason.when(~F.is_valid_utf8(text), "not UTF-8")
    return reason.when(~F.ltrim(text, F.lit(" \n\r\t")).startswith("{"), "not a JSON object")
