"""How much of each column of an output is null: a field that changed its type shows there first."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructField, StructType


def shares(values: DataFrame, schema: StructType) -> DataFrame:
    """Return one row: per column of a schema the share of the values in which it is null; null without any value.

    Args:
        values: Column `value`: the JSON texts of an output, as bytes. Tombstones are no values.
        schema: Its columns. NaN counts as null: no reader can go on with it.
    """
    fields = F.from_json(F.col("value").cast("string"), schema).alias("fields")
    rows = values.where(F.col("value").isNotNull()).select(fields)
    return rows.agg(*(F.avg(_absent(field).cast("int")).alias(field.name) for field in schema.fields))


def _absent(field: StructField) -> Column:
    column = F.col(f"fields.`{field.name}`")
    if isinstance(field.dataType, (DoubleType, FloatType)):
        return column.isNull() | F.isnan(column)
    return column.isNull()
