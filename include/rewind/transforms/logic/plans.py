"""What a logic asks of Spark, as values: the analysed plan of a frame, read once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

RECORDS = "records"
"""Name of the leaf that stands for the frame that logic was given."""

CASTS = frozenset({"Cast", "ParseToDate", "ParseToTimestamp"})
PARSERS = frozenset({"CsvToStructs", "JsonToStructs", "VariantGet", "XmlToStructs"})
"""Expressions whose answer may lie in how a text is read as an instant."""


@dataclass(frozen=True)
class Read:
    """How an expression of `CASTS` or `PARSERS` reads a value.

    Attributes:
        given: Type of what is read.
        made: Type of what it becomes.
        constant: Whether what is read is the same for each row.
        text: What is read, where it stands in the plan.
        form: The form that it is to have, as text; empty where the reading chooses one.
    """

    given: DataType
    made: DataType
    constant: bool
    text: str | None
    form: str


@dataclass(frozen=True)
class Expression:
    """An expression of a plan.

    Attributes:
        name: Its class in Spark, `CurrentTimestamp`.
        told: What a user calls it, `current_timestamp()`.
        value: Of a literal, what it says.
        within: Names of the expressions that it stands in, at most two, the nearest first.
        read: Of `CASTS` and `PARSERS`: how it reads.
        function: Of a function of Python that is not said to be nondeterministic, its name.
    """

    name: str
    told: str
    value: str
    within: tuple[str, ...]
    read: Read | None
    function: str = ""


@dataclass(frozen=True)
class Node:
    """A node of a plan.

    Attributes:
        name: Its name in Spark, `Project`; `RECORDS` for the frame that logic was given.
        kind: Of a join, which: `LEFT OUTER`.
        expressions: All in it, those within others too.
        children: What it takes its rows from.
    """

    name: str
    kind: str
    expressions: tuple[Expression, ...]
    children: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """Give this node and all below it, a node before its children."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo += reversed(node.children)


def read(frame: DataFrame, records: DataFrame) -> Node:
    """Return the analysed plan of what logic made of records."""
    return _node(_analysed(frame), _analysed(records))


def nodes(frame: DataFrame) -> list[Any]:
    """Return the nodes of a frame's analysed plan as Spark has them, children behind their parents."""
    found, todo = [], [_analysed(frame)]
    while todo:
        node = todo.pop()
        found.append(node)
        todo += _each(node.children())
    return found


def names(frame: DataFrame) -> list[str]:
    """Return the names of the nodes of a frame's analysed plan."""
    return [str(node.nodeName()) for node in nodes(frame)]


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the only way to a plan


def _each(found: Any) -> list[Any]:
    return [found.apply(i) for i in range(found.size())]


def _node(found: Any, records: Any) -> Node:
    children = _each(found.children())
    # Spark numbers the columns of each use of a frame anew: that it is the same frame remains.
    given = not children and found.sameResult(records)
    name = RECORDS if given else str(found.nodeName())
    kind = str(found.joinType().sql()) if name == "Join" else ""
    below = []
    for child in children:  # A frame of the interpreter's stack a level, not two.
        below.append(_node(child, records))  # noqa: PERF401
    return Node(name, kind, tuple(_expressions(found)), tuple(below))


def _expressions(node: Any) -> Iterator[Expression]:
    todo: list[tuple[Any, tuple[str, ...]]] = [(found, ()) for found in reversed(_each(node.expressions()))]
    while todo:
        found, within = todo.pop()
        name = str(found.getClass().getSimpleName()).rstrip("$")
        value = str(found) if name == "Literal" else ""
        yield Expression(name, _told(found, name), value, within, _read(found, name), _function(found, name))
        todo += [(child, (name, *within[:1])) for child in reversed(_each(found.children()))]


def _told(found: Any, name: str) -> str:
    return f"{found.name()}() in Python" if name == "PythonUDF" else f"{str(found.prettyName()).lower()}()"


def _function(found: Any, name: str) -> str:
    return str(found.name()) if name == "PythonUDF" and found.udfDeterministic() else ""


def _read(found: Any, name: str) -> Read | None:
    if name not in CASTS | PARSERS:
        return None
    given, *rest = _each(found.children())
    text = str(given) if given.getClass().getSimpleName() == "Literal" else None
    form = ", ".join(map(str, rest)) if name in CASTS else "" if name == "VariantGet" else str(found.options())
    return Read(_type(given), _type(found), bool(given.foldable()), text, form)


def _type(found: Any) -> DataType:
    """Return the type of an expression: Spark writes that of a single value as JSON, but reads only a whole schema."""
    column = {"name": "one", "type": json.loads(found.dataType().json()), "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [column]}).fields[0].dataType
