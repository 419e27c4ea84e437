"""Which columns a pipeline may read and give: names and types that come out of every place as they went in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rewind.core.errors import RefusedError

_LEAVES = (
    BinaryType,
    BooleanType,
    DateType,
    NullType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
RESERVED = ("_src", "_reason", "_reject", "_text", "_parsed", "_sound", "_row")
"""Names that the engine gives columns of its own."""
RESERVED_IN_TABLES = ("_key", "_headers", "_ordinal", "_tombstone", "_value", "_version")
_NOT_IN_TABLES = frozenset(" ,;{}()\n\t=")
"""Characters that Delta refuses in a column's name."""


def check(schema: StructType, field: str, *, table: bool = False) -> None:
    """Check the columns of a source or of an output.

    Args:
        schema: The columns.
        field: What is named when one is refused.
        table: Whether they become columns of a Delta table.

    Raises:
        RefusedError: A name that the engine or another column has, one that differs from another by case alone, one
            that a table cannot have, or a type that JSON cannot bring back (docs/values.md).
    """
    reserved = {*RESERVED, *(RESERVED_IN_TABLES if table else ())}
    for name in schema.names:
        if name.lower() in reserved:
            raise RefusedError(field, f"{name} is a name that Rewind gives columns of its own", "Rename the column")
    for path, kind in _structs(schema, ""):
        _check_names(path, kind, field, table)
    for path, problem in _misfits(schema, ""):
        raise RefusedError(field, f"{path} is {problem}", "Use another type; docs/values.md lists them")


def _check_names(path: str, kind: StructType, field: str, table: bool) -> None:
    counts = Counter(name.lower() for name in kind.names)
    for name in kind.names:
        told = f"{path}{name}"
        if not name.strip():
            raise RefusedError(field, f"{told!r} is a blank name", "Name the column")
        if counts[name.lower()] > 1:
            cure = "Rename one: Spark does not tell names apart by case"
            raise RefusedError(field, f"{told} stands there twice, if only in another case", cure)
        if table and _NOT_IN_TABLES & set(name):
            raise RefusedError(field, f"{told!r} cannot name a column of a Delta table", "Rename it in transform()")


def _structs(kind: DataType, path: str) -> Iterator[tuple[str, StructType]]:
    if isinstance(kind, StructType):
        yield path, kind
        for field in kind.fields:
            yield from _structs(field.dataType, f"{path}{field.name}.")
    elif isinstance(kind, ArrayType):
        yield from _structs(kind.elementType, path)
    elif isinstance(kind, MapType):
        yield from _structs(kind.valueType, path)


def _misfits(kind: DataType, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _misfits(field.dataType, _below(path, field))
    elif isinstance(kind, ArrayType):
        yield from _misfits(kind.elementType, f"{path}[]")
    elif isinstance(kind, MapType):
        if type(kind.keyType) is not StringType:
            yield path, f"a map with keys of {kind.keyType.simpleString().upper()}, which JSON cannot have"
        yield from _misfits(kind.valueType, f"{path}{{}}")
    elif not isinstance(kind, _LEAVES) or kind.simpleString().startswith("string "):
        # A collation would call texts equal that are not.
        yield path, f"of type {kind.simpleString().upper()}, which is not read or written exactly"


def _below(path: str, field: StructField) -> str:
    return f"{path}.{field.name}" if path else field.name
