"""Whether two typed values are the same, also where Spark cannot ask: maps, and values of two types."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, FractionalType, MapType, NumericType, StructType

from rewind.transforms.values import json_text, nesting

_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Digits of the greatest whole number of a type."""


def same(left: Column, right: Column, left_kind: DataType, right_kind: DataType) -> Column:
    """Return whether two values are the same, null-safe: NaN is NaN, -0.0 is 0.0, and the order of a map is nothing.

    Values of two types are the same where both are numbers, or consist of such, and equal without rounding; others
    where they are written as the same JSON, as a text and a number never are.
    """
    if left_kind == right_kind:
        return orderable(left, left_kind).eqNullSafe(orderable(right, right_kind))
    neither = left.isNull() & right.isNull()
    both = left.isNotNull() & right.isNotNull()
    return neither | (both & F.coalesce(_of_two_types(left, right, left_kind, right_kind), F.lit(False)))


def orderable(value: Column, kind: DataType) -> Column:
    """Return a value in a form that can be compared: maps as their entries, by key."""
    return nesting.rebuilt(value, kind, lambda inner: isinstance(inner, MapType), _entries)


def _entries(value: Column, kind: DataType) -> Column:
    assert isinstance(kind, MapType)
    of = kind.valueType
    named = F.transform(
        F.map_entries(value), lambda e: F.struct(e["key"].alias("key"), orderable(e["value"], of).alias("value"))
    )
    return F.sort_array(named)


def _of_two_types(left: Column, right: Column, left_kind: DataType, right_kind: DataType) -> Column:
    if isinstance(left_kind, NumericType) and isinstance(right_kind, NumericType):
        return _numbers(left, right, left_kind, right_kind)
    if isinstance(left_kind, StructType) and isinstance(right_kind, StructType):
        return _structs(left, right, left_kind, right_kind)
    if isinstance(left_kind, ArrayType) and isinstance(right_kind, ArrayType):
        pairs = F.arrays_zip(left.alias("l"), right.alias("r"))
        kinds = left_kind.elementType, right_kind.elementType
        return (F.size(left) == F.size(right)) & F.forall(pairs, lambda pair: same(pair["l"], pair["r"], *kinds))
    # Two outputs that say the same in each byte are equal: a text "NaN", and that of a DOUBLE.
    return json_text.of_value(left, left_kind) == json_text.of_value(right, right_kind)


def _numbers(left: Column, right: Column, left_kind: NumericType, right_kind: NumericType) -> Column:
    """Return whether two numbers are equal, without that one is rounded to the type of the other.

    A FLOAT and a DOUBLE count as the decimal number that their text says.
    """
    sides = [(left, _exact(left_kind)), (right, _exact(right_kind))]
    floating = [value for value, kind in sides if kind is None]
    exact = sorted(((value, kind) for value, kind in sides if kind is not None), key=lambda side: side[1].scale)
    if len(floating) == 2:
        return _double(left) == _double(right)
    if len(exact) == 2:
        # A number keeps its digits in a type of more digits behind the point, or is too great for it, and so unequal.
        (coarse, of_coarse), (fine, of_fine) = exact
        return coarse.cast(of_coarse).try_cast(of_fine) == fine.cast(of_fine)
    (rounded,), ((value, kind),) = floating, exact
    near = _double(rounded) == value.cast("double")
    return near & (rounded.cast("string").try_cast(kind) == value.cast(kind))


def _exact(kind: NumericType) -> DecimalType | None:
    """Return the decimal type that holds each value of a type, None for FLOAT and DOUBLE."""
    if isinstance(kind, DecimalType):
        return kind
    return None if isinstance(kind, FractionalType) else DecimalType(_DIGITS[kind.typeName()], 0)


def _double(floating: Column) -> Column:
    return floating.cast("string").cast("double")


def _structs(left: Column, right: Column, left_kind: StructType, right_kind: StructType) -> Column:
    names = list(dict.fromkeys([*left_kind.names, *right_kind.names]))
    fields = []
    for name in names:
        if name in left_kind.names and name in right_kind.names:
            fields.append(same(left[name], right[name], left_kind[name].dataType, right_kind[name].dataType))
        else:
            fields.append((left[name] if name in left_kind.names else right[name]).isNull())
    return reduce(Column.__and__, fields, F.lit(True))
