"""Rules of columns: what they call equal, and what is a difference all the same."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DecimalType, StringType, StructType

from rewind.core.errors import RefusedError
from rewind.core.pipeline import INSTANT, TOLERANCE, UNORDERED, VOLATILE, ColumnRule
from rewind.steps.compare.findings import Found, likely_volatile
from rewind.transforms.comparing.compare import Sides
from rewind.transforms.logic import column_rules
from tests.support.compared_rows import compared, row

pytestmark = pytest.mark.full

NEAR = ColumnRule("price", TOLERANCE, relative=0.01, absolute=0.5)
ANY = ColumnRule("stamp", VOLATILE)
SET = ColumnRule("tags", UNORDERED)
TIME = ColumnRule("seen", INSTANT)
SCHEMA = (
    StructType()
    .add("id", "long")
    .add("price", "double")
    .add("big", "long")
    .add("exact", DecimalType(38, 10))
    .add("tags", ArrayType(StringType()))
    .add("seen", "string")
    .add("stamp", "long")
)


def cases(
    spark: SparkSession, rule: ColumnRule, pairs: list[tuple[object, object]], live: StructType = SCHEMA
) -> list[bool]:
    """Return of each pair of values of the rule's column whether it is equal."""
    sides = Sides(live, SCHEMA, (), (rule,))
    rows = [[row(n, _text(n, rule.column, pair[side])) for n, pair in enumerate(pairs)] for side in (0, 1)]
    found = compared(spark, rows[0], rows[1], sides)
    changed = {at["offset"] for at in found.sample}
    assert found.counts["equal"] + found.counts["changed"] == len(pairs) == found.counts["equal"] + len(changed)
    assert found.fields == ({"changed": {rule.column: len(changed)}} if changed else {})
    return [number not in changed for number in range(len(pairs))]


def _text(number: int, column: str, value: object) -> str:
    # What stands for itself is no JSON string: a number as Spark writes it.
    shown = value.removeprefix("=") if isinstance(value, str) and value.startswith("=") else json.dumps(value)
    return f'{{"id":{number},"{column}":{shown}}}'


@pytest.mark.parametrize(
    ("rule", "equal", "different"),
    [
        (NEAR, [(100.0, 101.0), (0.0, 0.5), (-0.0, 0.0), ("NaN", "NaN"), (None, None)], [(100.0, 101.02), (0.0, None)]),
        (NEAR, [("Infinity", "Infinity")], [("Infinity", 1e300), ("NaN", 1.0), ("-Infinity", "Infinity")]),
        (
            ColumnRule("big", TOLERANCE, absolute=1.0),
            [("=9007199254740993", "=9007199254740992")],
            [("=9007199254740994", "=9007199254740992"), ("=9223372036854775807", "=-9223372036854775808")],
        ),
        (
            ColumnRule("exact", TOLERANCE, absolute=1e-9),
            [("=1234567890123456789.1234567891", "=1234567890123456789.1234567890")],
            [("=1234567890123456789.1234567991", "=1234567890123456789.1234567890")],
        ),
        (
            SET,
            [(["a", "b", "a"], ["b", "a", "a"]), ([None, "a"], ["a", None]), ([], []), (None, None)],
            [(["a", "b"], ["a", "b", "b"]), (["a"], []), ([], None)],
        ),
        (
            TIME,
            [("2025-09-04T09:00:00+02:00", "2025-09-04 07:00:00Z"), ("soon", "soon")],
            [
                ("2025-09-04T09:00:00+02:00", "2025-09-04T09:00:00+01:00"),
                ("soon", "later"),
                ("2025-09-04T07:00:00.1234567Z", "2025-09-04T07:00:00.1234568Z"),
                ("2025-09-04T07:00:00Z", None),
            ],
        ),
        (ANY, [(1, 2), (1, None)], []),
    ],
)
def test_what_a_rule_calls_equal(spark, rule, equal, different):
    assert cases(spark, rule, equal + different) == [True] * len(equal) + [False] * len(different)


def test_a_volatile_column_must_be_in_both_with_one_type(spark):
    other = StructType([field for field in SCHEMA.fields if field.name != "stamp"])
    assert cases(spark, ANY, [(1, 2)], other) == [False]
    assert cases(spark, ANY, [(1, 2)], other.add("stamp", "string")) == [False]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (ColumnRule("none", VOLATILE), "compare.volatile: transform() returns no none. Its columns are id, price"),
        (ColumnRule("seen", TOLERANCE), "compare.tolerance: seen is string, no number. The rule is for a number"),
        (ColumnRule("price", UNORDERED), "compare.unordered: price is double, no array"),
        (ColumnRule("stamp", INSTANT), "compare.instant: stamp is bigint, no text"),
    ],
)
def test_a_rule_that_does_not_fit_the_output_is_refused(rule, problem):
    with pytest.raises(RefusedError) as refused:
        column_rules.check((rule,), SCHEMA)
    assert str(refused.value).startswith(problem)


def test_rules_that_fit_are_taken(spark):
    column_rules.check((NEAR, ANY, SET, TIME), SCHEMA)
    assert spark.range(1).select(column_rules.equal(ANY, F.lit(1), F.lit(2), SCHEMA["stamp"].dataType)).first()[0]


CLOSE = (ColumnRule("price", TOLERANCE, relative=1e-9), ColumnRule("other", TOLERANCE, relative=1e-9))
C33 = [
    ("price", 0.1 + 0.2, 0.3, True),
    ("price", "NaN", "NaN", True),
    ("price", "NaN", None, False),
    ("price", -0.0, 0.0, True),
    ("price", "Infinity", "Infinity", True),
    ("price", 123.45, 123.46, False),
    ("exact", "=10.10", "=10.1", True),
    ("big", "=10000000000000000", "=10000000000000001", False),
]


@pytest.mark.shows("verdict", c33_equal=sum(same for *_, same in C33))
def test_c33_floats_nan_and_negative_zero(spark):
    """Case C33: a relative tolerance of 1e-9 on the columns of doubles alone."""
    rows = [[row(n, _text(n, case[0], case[side])) for n, case in enumerate(C33)] for side in (1, 2)]
    found = compared(spark, rows[0], rows[1], Sides(SCHEMA, SCHEMA, (), CLOSE))
    changed = {at["offset"] for at in found.sample}
    assert [n not in changed for n in range(len(C33))] == [same for *_, same in C33]


@pytest.mark.shows("verdict", c34="1 difference in page; undeclared, at and trace are named")
def test_c34_columns_that_never_match_hide_no_difference(spark):
    """Case C34: ten events, one with another page; the time of processing and a trace differ in all."""
    schema = StructType().add("event_id", "long").add("page", "string").add("at", "long").add("trace", "string")
    live = [row(n, json.dumps({"event_id": n, "page": "home", "at": n, "trace": f"a{n}"})) for n in range(10)]
    pages = ["home"] * 9 + ["index"]
    candidate = [
        row(n, json.dumps({"event_id": n, "page": pages[n], "at": n + 1, "trace": f"b{n}"})) for n in range(10)
    ]
    plain = compared(spark, live, candidate, Sides(schema, schema, ()))
    assert plain.fields == {"changed": {"page": 1, "at": 10, "trace": 10}}
    assert likely_volatile(plain) == ["at", "trace"]
    rules = (ColumnRule("at", VOLATILE), ColumnRule("trace", VOLATILE))
    ruled = compared(spark, live, candidate, Sides(schema, schema, (), rules))
    assert (ruled.counts["equal"], ruled.counts["changed"], ruled.fields) == (9, 1, {"changed": {"page": 1}})
    assert likely_volatile(ruled) == []


def test_a_column_that_differs_in_all_rows_is_named():
    counts = {"rows": 13, "equal": 0, "expected": 0, "changed": 10, "missing": 3}
    assert likely_volatile(Found(counts, {"changed": {"stamp": 10, "page": 9}})) == ["stamp"]
    assert likely_volatile(Found({**counts, "equal": 1}, {"changed": {"stamp": 10}})) == []
    assert likely_volatile(Found({**counts, "changed": 9}, {"changed": {"stamp": 9}})) == []
