"""Whether logic gives each record its rows from that record alone, and always the same (ADR 0034)."""

from __future__ import annotations

from collections.abc import Collection

from rewind.core.errors import RefusedError
from rewind.transforms.logic import expressions
from rewind.transforms.logic.plans import RECORDS, Node

NODES = frozenset(
    {
        "CTERelationDef",
        "CTERelationRef",
        "Expand",
        "Filter",
        "Generate",
        "Join",
        "LocalRelation",
        "OneRowRelation",
        "Project",
        "Range",
        "ResolvedHint",
        "SubqueryAlias",
        "Union",
        "View",
        "WithCTE",
        RECORDS,
    }
)
"""Nodes of a plan that take each row by itself; of some of them `_check_rows` asks for more."""
STATE = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "TransformWithStateInPySpark",
    }
)
"""Nodes that keep state, for a pipeline that declares it."""
_PYTHON_STATE = frozenset({"FlatMapGroupsInPandasWithState", "TransformWithStateInPySpark"})
_TABLES = frozenset({"LocalRelation", "OneRowRelation", "Range"})
_SEVERAL = frozenset({"Expand", "Generate", "Join", "Union"})
_LOOKS_UP = frozenset({"LEFT ANTI", "LEFT SEMI"})
# Which sides may hold the records: rows of the other that match none of them would come once a batch.
_KEEPS_LEFT = frozenset({"CROSS", "INNER", "LEFT OUTER", *_LOOKS_UP})
_KEEPS_RIGHT = frozenset({"CROSS", "INNER", "RIGHT OUTER"})

_CURES = {
    "Join": "Join with rows that are written into the logic, and keep those of the records",
    "LateralJoin": "Use LATERAL VIEW",
    "Repartition": "Leave it out: rows are written in the order of their records",
    "Sample": "Choose by the record: pmod(xxhash64(_src.partition, _src.offset), 100) < 10",
    "Sort": "Leave it out: rows are written in the order of their records",
    "Union": "Union what comes of the records alone",
}
_WRITTEN = "Write them there: a map, or spark.sql(\"SELECT * FROM VALUES ('a', 1) AS t(name, number)\")"


def check(pipeline: str, plan: Node, *, stateful: bool, several: bool, functions: Collection[str] = ()) -> None:
    """Check that a plan is made of nodes and expressions that are known to be row-wise.

    Args:
        pipeline: Its name.
        plan: What its logic makes of records.
        stateful: Whether it may keep state: the rest of its plan is held to the same.
        several: Whether one record may give several rows; matters for one without state.
        functions: Names of the functions of Python that it declares (`Pipeline.functions`).

    Raises:
        RefusedError: Something else is in it, which is named.
    """
    for node in plan.walk():
        if node.name not in NODES and not (stateful and node.name in STATE):
            raise _unknown(pipeline, node)
        _check_expressions(pipeline, node, functions)
    if not _check_rows(pipeline, plan):
        raise _refused(pipeline, f"{plan.name} of rows that no record gave", plan.name)
    multiplying = next((node for node in plan.walk() if _multiplies(node)), None)
    if multiplying is not None and not stateful and not several:
        problem = f"{pipeline}: transform() uses {multiplying.name}, which may give several rows of one record"
        raise RefusedError("several_rows", problem, "Declare several_rows: true, so that they are numbered")


def _check_expressions(pipeline: str, node: Node, functions: Collection[str]) -> None:
    if node.name in _PYTHON_STATE:
        return
    for found in node.expressions:
        refusal = expressions.refusal(found, grouping=node.name == "Aggregate", functions=functions)
        if refusal is not None:
            raise RefusedError("logic", f"{pipeline}: transform() uses {refusal[0]}", refusal[1])


def _check_rows(pipeline: str, node: Node) -> bool:
    """Return whether the rows of a node come of records; those of a table that is written into the logic do not."""
    if not node.children:
        # What a reference leads to is checked where it is defined.
        return node.name not in _TABLES
    of_records = [_check_rows(pipeline, child) for child in node.children]
    if node.name == "Join":
        if all(of_records):
            raise _refused(pipeline, "Join of records with records: those of one batch meet", node.name)
        if any(of_records) and node.kind not in (_KEEPS_LEFT if of_records[0] else _KEEPS_RIGHT):
            raise _refused(pipeline, f"Join ({node.kind.lower()}), which gives rows that no record gave", node.name)
    elif any(of_records) != all(of_records) or (node.name == "CTERelationDef" and not all(of_records)):
        raise _refused(pipeline, f"{node.name} with rows that no record gave", node.name)
    return any(of_records)


def _multiplies(node: Node) -> bool:
    """Return whether a node may give several rows of one; a table's own rows are numbered by nobody."""
    one_each = node.kind in _LOOKS_UP or any(found.name == "JsonTuple" for found in node.expressions)
    leaves = (below.name for below in node.walk() if not below.children)
    return node.name in _SEVERAL and not one_each and not _TABLES.issuperset(leaves)


def _unknown(pipeline: str, node: Node) -> RefusedError:
    if node.children:
        return _refused(pipeline, f"{node.name}, which may give other rows for other batches", node.name)
    problem = f"{pipeline}: transform() uses {node.name}, rows that are not written into the logic"
    return RefusedError("logic", problem, _WRITTEN)


def _refused(pipeline: str, problem: str, name: str) -> RefusedError:
    return RefusedError("logic", f"{pipeline}: transform() uses {problem}", _CURES.get(name, expressions.OTHERWISE))
