"""Columns by their names as they are: a dot, a colon or a backtick in a name is a part of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes it, whatever characters it holds."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str, of: str = "") -> Column:
    """Return the column of a name, or the field of that name in the struct `of`."""
    return F.col(f"{of}.{quoted(name)}" if of else quoted(name))


def structure(names: Iterable[str]) -> Column:
    """Return a struct of the columns of some names."""
    return F.struct(*(column(name).alias(name) for name in names))


def ddl(kind: DataType) -> str:
    """Return the DDL of a type, in which the names of fields that need it are quoted."""
    if isinstance(kind, ArrayType):
        return f"array<{ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{ddl(kind.keyType)},{ddl(kind.valueType)}>"
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{_as_needed(f.name)}:{ddl(f.dataType)}' for f in kind.fields)}>"
    return str(kind.simpleString())


def _as_needed(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else quoted(name)
