"""Typed values to the JSON texts of an output, without losing what finer than a millisecond they hold.

`to_json` writes three digits of a second, and the offset of a zone without its seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, TimestampNTZType, TimestampType

from rewind.transforms.values import nesting
from rewind.transforms.values.quoting import column, structure

_TO_SECOND, _OFFSET = "yyyy-MM-dd'T'HH:mm:ss", "XXXXX"


def of_columns(fields: Iterable[StructField], exact: bool) -> Column:
    """Return the JSON text of some columns; nulls are left out.

    Args:
        fields: The columns, by name.
        exact: Whether instants keep their microseconds, as `Pipeline.exact` says.
    """
    listed = list(fields)
    if not exact:
        return F.to_json(structure(field.name for field in listed))
    return F.to_json(F.struct(*(_written(column(f.name), f.dataType).alias(f.name) for f in listed)))


def of_value(value: Column, kind: DataType) -> Column:
    """Return how one value is written, within an object of its own."""
    return F.to_json(F.struct(_written(value, kind).alias("value")))


def _written(value: Column, kind: DataType) -> Column:
    """Return a value as `to_json` may write it: instants as texts of three digits of a second, or of six."""
    return nesting.rebuilt(value, kind, lambda inner: isinstance(inner, (TimestampType, TimestampNTZType)), _instant)


def _instant(value: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        whole = F.unix_micros(value) % 1000 == 0
        texts = [F.date_format(value, f"{_TO_SECOND}.{'S' * digits}{_OFFSET}") for digits in (3, 6)]
        return F.when(whole, texts[0]).otherwise(texts[1])
    parts = F.split(F.replace(value.cast("string"), F.lit(" "), F.lit("T")), "[.]")
    digits = F.coalesce(F.get(parts, F.lit(1)), F.lit(""))
    padded = F.when(F.length(digits) <= 3, F.rpad(digits, 3, "0")).otherwise(F.rpad(digits, 6, "0"))
    return F.concat(parts[0], F.lit("."), padded)
