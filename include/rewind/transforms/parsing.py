"""Source records to parsed columns, with a reason for each record that is rejected before logic."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

SOURCE_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
"""Columns of a source record, the same from Kafka and from the mirror."""

SRC = "_src"
"""Reserved column: where a row came from, with the record's own key and value for the engine."""
REASON = "_reason"
"""Reserved column: why the engine rejects the record, null when it does not."""
REJECT = "_reject"
"""Reserved column that logic may add: why it rejects the row, null when it does not."""

_CORRUPT = "_corrupt"


def parse(records: DataFrame, schema: StructType, required: Sequence[str]) -> DataFrame:
    """Return `_src`, `_reason` and the parsed columns of each record.

    A null value is a tombstone: its parsed columns and its reason are null. A value is rejected when it is not
    UTF-8, no JSON object, breaks off, holds a value of another type than declared, or lacks a required
    column. Of a field that stands twice the last one counts; a field that is not declared is ignored.

    Args:
        records: Columns `SOURCE_COLUMNS`.
        schema: The declared columns.
        required: Declared columns that must not be null.
    """
    text = F.col("value").cast("string")
    # A valid UTF-8 check comes first: a cast would merge other bytes into replacement characters.
    usable = F.when(F.is_valid_utf8(text), text)
    with_corrupt = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    read = records.withColumn("_parsed", F.from_json(usable, with_corrupt, options))
    source = F.struct("topic", "partition", "offset", "timestamp", "key", "value").alias(SRC)
    fields = [F.col(f"_parsed.`{field.name}`").alias(field.name) for field in schema.fields]
    return read.select(source, _reason(text, required).alias(REASON), *fields)


def declared(ddl: str) -> StructType:
    """Return the schema of a DDL text."""
    made = StructType.fromDDL(ddl)
    assert isinstance(made, StructType)
    return made


def _reason(text: Column, required: Sequence[str]) -> Column:
    value, parsed = F.col("value"), F.col("_parsed")
    reason = F.when(value.isNull(), F.lit(None).cast("string"))
    reason = reason.when(F.length(value) == 0, "empty value")
    reason = reason.when(~F.is_valid_utf8(text), "not UTF-8")
    reason = reason.when(~F.ltrim(text).startswith("{"), "not a JSON object")
    reason = reason.when(parsed.isNull() | parsed[_CORRUPT].isNotNull(), "malformed, or a value of another type")
    for name in required:
        reason = reason.when(parsed[name].isNull(), f"{name} is missing")
    return reason
