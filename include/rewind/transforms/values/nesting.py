"""Values within arrays, maps and structs, reached by one walk."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

Touches = Callable[[DataType], bool]


def holds(kind: DataType, touches: Touches) -> bool:
    """Return whether a type is, or holds at any depth, one that is touched."""
    if touches(kind):
        return True
    if isinstance(kind, ArrayType):
        return holds(kind.elementType, touches)
    if isinstance(kind, MapType):
        return holds(kind.valueType, touches)
    return isinstance(kind, StructType) and any(holds(field.dataType, touches) for field in kind.fields)


def rebuilt(value: Column, kind: DataType, touches: Touches, change: Callable[[Column, DataType], Column]) -> Column:
    """Return a value in which each part of a touched type is changed, and all else, nulls too, stays as it is."""
    if touches(kind):
        return change(value, kind)
    if not holds(kind, touches):
        return value
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda element: rebuilt(element, kind.elementType, touches, change))
    if isinstance(kind, MapType):
        return F.transform_values(value, lambda _, element: rebuilt(element, kind.valueType, touches, change))
    assert isinstance(kind, StructType)
    fields = [rebuilt(value[f.name], f.dataType, touches, change).alias(f.name) for f in kind.fields]
    return F.when(value.isNotNull(), F.struct(*fields))
