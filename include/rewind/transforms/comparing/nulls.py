"""How much of each column of an output is null: a field that changed its type shows there first."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructField, StructType

from rewind.transforms.values.quoting import column

VALUES = "_values"


def counted(values: DataFrame, schema: StructType) -> DataFrame:
    """Return one row: `_values`, how many there are, and per column of a schema in how many of them it is null.

    Args:
        values: Column `value`: the JSON texts of an output, as bytes. Tombstones are no values.
        schema: Its columns. NaN counts as null: no reader can go on with it.
    """
    fields = F.from_json(F.col("value").cast("string"), schema).alias("fields")
    rows = values.where(F.col("value").isNotNull()).select(fields)
    absent = (F.count(F.when(_absent(field), True)).alias(field.name) for field in schema.fields)
    return rows.agg(F.count(F.lit(1)).alias(VALUES), *absent)


def _absent(field: StructField) -> Column:
    value = column(field.name, "fields")
    if isinstance(field.dataType, (DoubleType, FloatType)):
        return value.isNull() | F.isnan(value)
    return value.isNull()
