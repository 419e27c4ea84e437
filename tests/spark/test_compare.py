"""Two outputs against each other: cases C09, C12, C21 and C30, and every class."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import ExpectedChange
from rewind.steps.compare.findings import Found, judge
from rewind.transforms.comparing.compare import Sides
from rewind.transforms.values import parsing
from tests.scenarios import truth_pairs
from tests.support.compared_rows import HORIZON, SCHEMA, Case, check_cases, classes, compared, page, row

C30 = [row(0, "", kind="dead"), row(1, ""), row(2, "[]"), row(3, "{broken")]
C31 = [[(*row(0, None, kind="dead")[:6], text.encode("latin-1"), "not UTF-8", 0, 0)] for text in ("\xff", "\xfe")]
CASES: dict[str, Case] = {
    "equal rows in any order": ([page(o) for o in range(5)], [page(o) for o in range(5)][::-1], {"equal": 5}),
    "each class": (
        [page(0), page(1), page(2), row(3, "x", kind="dead"), page(4), row(5, "x", kind="dead"), row(6, None)],
        [
            page(0),
            page(1, "index"),
            page(7),
            page(3),
            row(4, "x", kind="dead"),
            row(5, "y", kind="dead"),
            row(6, None, key=b"q"),
        ],
        {
            "equal": 1,
            "missing": 1,
            "extra": 1,
            "changed": 3,
            "dead_letter_only_live": 1,
            "dead_letter_only_candidate": 1,
            "fields": {"changed": {"page": 1, "key": 1}},
        },
    ),
    "C09: null keys match, a lost repeat is seen": (
        [page(0, key=None), page(1), page(1, at=1), page(2)],
        [page(2), page(0, key=None), page(1)],
        {"equal": 3, "repeated": 1},
    ),
    "copies of one source that differ are told even when both sides agree on the last": (
        [page(1, "a", at=0), page(1, "b", at=1)],
        [page(1, "b")],
        {"equal": 1, "repeated": 1, "repeated_differently": 1},
    ),
    "C21: two texts of one instant are equal, another instant is not": (
        [row(0, '{"id":1,"at":"2025-09-04T07:00:00.000+02:00"}'), row(1, '{"id":1,"at":"2025-09-04T07:00:00.000Z"}')],
        [row(0, '{"id":1,"at":"2025-09-04T05:00:00.000Z"}'), row(1, '{"id":1,"at":"2025-09-04T05:00:00.000Z"}')],
        {"equal": 1, "changed": 1, "fields": {"changed": {"at": 1}}},
    ),
    "the order of fields is no difference": (
        [row(0, '{"id":1,"page":"a"}')],
        [row(0, '{"page":"a","id":1}')],
        {"equal": 1},
    ),
    "a value against a tombstone is a change of the whole value": (
        [page(0)],
        [row(0, None)],
        {"changed": 1, "fields": {"changed": {"value": 1}}},
    ),
    "C30: empty values and nulls": (C30, C30, {"equal": 4}),
    "C31: bytes that are no text stay apart": (*C31, {"changed": 1}),
    "values that differ but cannot be read are a change": (
        [row(0, "{broken")],
        [row(0, "{brokes")],
        {"changed": 1, "fields": {"changed": {"value": 1}}},
    ),
    "of one source the highest repair counts": (
        [page(0, "old", at=5), page(0, "new", repair=2, at=1), page(0, "mid", repair=1, at=9)],
        [page(0, "new")],
        {"equal": 1},
    ),
    "P06: a key beside no value is no value beside no key": (
        [row(0, "x", key=None), (*row(1, None, key=b"x", kind="dead")[:7], None, 0, 0)],
        [row(0, None, key=b"x"), (*row(1, "x", key=None, kind="dead")[:7], None, 0, 0)],
        {"changed": 2, "fields": {"changed": {"value": 1}}},
    ),
    "P06: copies that differ in where the null stands": (
        [row(0, "x", key=None, at=0), row(0, None, key=b"x", at=1)],
        [row(0, None, key=b"x")],
        {"equal": 1, "repeated": 1, "repeated_differently": 1},
    ),
    "rows of one record are told by their number": (
        [page(0, "a", n=0), page(0, "b", n=1)],
        [page(0, "a", n=0)],
        {"equal": 1, "missing": 1},
    ),
}


@pytest.mark.shows("truth", p06="a null in another place is a change")
@pytest.mark.shows("verdict", c09="null keys match, a lost repeat is seen")
def test_every_case_is_told_as_it_is(spark: SparkSession) -> None:
    check_cases(spark, CASES)


def test_differing_copies_fail_the_verdict() -> None:
    assert judge(Found({"rows": 1, "repeated_differently": 1}), 1) == ("fail", "1 repeated_differently")


def test_dead_letters_alone_on_both_sides_are_no_pass(spark: SparkSession) -> None:
    letters = [row(0, "x", kind="dead"), row(1, "y", kind="dead")]
    told = "nothing was compared but 2 dead letters, which are the same on both sides"
    assert judge(compared(spark, letters, letters), 2) == ("error", told)
    with_a_row = [*letters, page(2)]
    assert judge(compared(spark, with_a_row, with_a_row), 3) == ("pass", "")


@pytest.mark.shows("verdict", c12="beyond the lower position is open")
def test_c12_what_lies_beyond_the_lower_position_is_open_not_missing(spark: SparkSession) -> None:
    live, candidate = [page(o) for o in range(121)], [page(o) for o in range(101)]
    horizon = {0: OffsetRange(0, 101)}
    assert classes(spark, live, candidate, horizon=horizon) == {"equal": 101, "open": 20}
    lacking = [r for r in candidate if r[1] != 99]
    assert classes(spark, live, lacking, horizon=horizon)["missing"] == 1


def test_what_lies_below_the_floor_is_left_out(spark: SparkSession) -> None:
    live, candidate = [page(o) for o in range(10)], [page(o) for o in range(4, 10)]
    assert classes(spark, live, candidate, horizon={0: OffsetRange(4, 10)}) == {"equal": 6}


def test_a_partition_that_the_horizon_lacks_is_open(spark: SparkSession) -> None:
    assert classes(spark, [page(0, p=2)], [], horizon=HORIZON) == {"open": 1}


def test_an_expected_change_counts_apart_when_it_keeps_its_rule(spark: SparkSession) -> None:
    sides = Sides(SCHEMA, SCHEMA, (ExpectedChange("page", "candidate.page = upper(live.page)"),))
    live = [page(0, "a"), page(1, "b"), page(2, "c"), page(3, "d")]
    candidate = [page(0, "A"), page(1, "x"), row(2, '{"id":9,"page":"C"}'), page(3, "d")]
    assert classes(spark, live, candidate, sides) == {
        "equal": 1,
        "expected": 1,
        "changed": 2,
        "fields": {"expected": {"page": 1}, "changed": {"page": 2, "id": 1}},
    }


def test_a_rule_that_gives_null_is_broken(spark: SparkSession) -> None:
    sides = Sides(SCHEMA, SCHEMA, (ExpectedChange("page", "candidate.page > live.page"),))
    assert classes(spark, [row(0, '{"id":0}')], [page(0)], sides) == {"changed": 1, "fields": {"changed": {"page": 1}}}


def test_a_column_that_only_one_side_has_is_a_change(spark: SparkSession) -> None:
    wider = parsing.declared("id BIGINT, page STRING, at TIMESTAMP, lang STRING")
    found = classes(spark, [page(0)], [row(0, '{"id":0,"page":"home","lang":"fr"}')], Sides(SCHEMA, wider, ()))
    assert found == {"changed": 1, "fields": {"changed": {"lang": 1}}}


def test_maps_and_values_of_two_types_are_compared_as_what_they_are(spark: SparkSession) -> None:
    live = parsing.declared(
        "m MAP<STRING, ARRAY<INT>>, n BIGINT, t STRING, d BIGINT, s STRUCT<a: BIGINT, b: INT>, "
        "w DECIMAL(38,37), x DECIMAL(38,18), f FLOAT, z STRING"
    )
    candidate = parsing.declared(
        "m MAP<STRING, ARRAY<INT>>, n INT, t BIGINT, d DOUBLE, s STRUCT<b: INT, a: INT, c: INT>, "
        "w DECIMAL(38,0), x BIGINT, f DECIMAL(5,2), z DOUBLE"
    )
    pairs = [
        ('{"m":{"a":[1],"b":[2]}}', '{"m":{"b":[2],"a":[1]}}', ""),
        ('{"m":{"a":[1]}}', '{"m":{"a":[2]}}', "m"),
        ('{"m":{"a":[1]}}', '{"m":{"b":[1]}}', "m"),
        ('{"n":5,"d":1}', '{"d":1,"n":5}', ""),
        ('{"t":"5"}', '{"t":5}', "t"),
        ('{"d":9007199254740993}', '{"d":9007199254740992.0}', "d"),
        ('{"d":5}', '{"d":5.0}', ""),
        ('{"d":5}', '{"d":5.5}', "d"),
        ('{"s":{"a":1,"b":2}}', '{"s":{"b":2,"a":1}}', ""),
        ('{"s":{"a":1,"b":2}}', '{"s":{"b":2,"a":1,"c":3}}', "s"),
        ('{"s":null}', '{"s":{"b":null}}', "s"),
        ('{"w":7.1}', '{"w":7}', "w"),
        ('{"w":7.0}', '{"w":7}', ""),
        ('{"w":7.0}', '{"w":99999999999999999999999999999999999999}', "w"),
        ('{"x":9223372036854775807.000000000000000001}', '{"x":9223372036854775807}', "x"),
        ('{"x":9223372036854775807}', '{"x":9223372036854775807}', ""),
        ('{"f":1.24}', '{"f":1.24}', ""),
        ('{"f":1.2400001}', '{"f":1.24}', "f"),
        ('{"f":"NaN"}', '{"f":1.24}', "f"),
        ('{"z":"NaN","n":5}', '{"n":5,"z":"NaN"}', ""),
        ('{"z":"1.5"}', '{"z":1.5}', "z"),
    ]
    sides = [[row(o, pair[side]) for o, pair in enumerate(pairs)] for side in (0, 1)]
    different = Counter(field for *_, field in pairs if field)
    assert classes(spark, *sides, Sides(live, candidate, ())) == {
        "equal": sum(not field for *_, field in pairs),
        "changed": sum(different.values()),
        "fields": {"changed": dict(different)},
    }


@pytest.mark.full
def test_drawn_pairs_are_called_equal_or_different_as_the_oracle_says(spark: SparkSession) -> None:
    found = truth_pairs.check(spark, 350, seed=20)
    assert min(found.values()) > 70


@pytest.mark.parametrize(
    ("counts", "expected_records", "verdict"),
    [
        ({"rows": 5}, 5, ("pass", "")),
        ({"rows": 0}, 0, ("error", "nothing was compared: there is no record that both jobs have processed")),
        ({"rows": 0}, 5, ("error", "nothing was compared, though the plan expected 5 records")),
        ({"rows": 5, "missing": 1, "changed": 2}, 5, ("fail", "1 missing; 2 changed")),
        ({"rows": 5, "dead_letter_only_live": 1}, 5, ("fail", "1 dead_letter_only_live")),
        ({"rows": 5, "expected": 5, "repeated": 3, "open": 7}, 5, ("pass", "")),
    ],
)
def test_the_verdict(counts: dict[str, int], expected_records: int, verdict: tuple[str, str]) -> None:
    assert judge(Found(counts), expected_records) == verdict
