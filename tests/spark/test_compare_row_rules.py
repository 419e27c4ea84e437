"""Rules of rows: what comes, goes or moves as expected, how many of it, and what is a difference all the same."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from rewind.core.errors import RefusedError
from rewind.core.pipeline import APPEAR, ENTER, LEAVE, VANISH, ExpectedChange, Pipeline, RowRule
from rewind.steps.compare.findings import Found, counted, judge
from rewind.transforms.comparing import row_rules
from rewind.transforms.comparing.compare import Sides
from tests.support.compared_rows import SCHEMA, Case, check_cases, classes, page, row

pytestmark = pytest.mark.full

RULES = (
    RowRule(APPEAR, "candidate.page = 'new' and live is null"),
    RowRule(VANISH, "live.page = 'bot' and candidate is null"),
    RowRule(LEAVE, "reason = 'bad' and record like '%fixed%' and candidate.page = 'fixed' and live is null"),
    RowRule(ENTER, "reason = 'bad' and live.page = 'torn'"),
)
SIDES = Sides(SCHEMA, SCHEMA, (), (), RULES)
LABELS = [rule.label for rule in RULES]


def dead(o: int, page: str) -> tuple:
    return row(o, json.dumps({"id": o, "page": page}), kind="dead")


ONE_EACH: list[tuple[list[tuple], list[tuple], str, str]] = [
    ([], [page(1, "new"), page(2, "old")], LABELS[0], "extra"),
    ([page(1, "bot"), page(2, "home")], [], LABELS[1], "missing"),
    ([dead(1, "fixed"), dead(2, "other")], [page(1, "fixed"), page(2, "fixed")], LABELS[2], "dead_letter_only_live"),
    # No row came of it: the predicate cannot be answered.
    ([dead(1, "fixed"), dead(2, "fixed")], [page(1, "fixed")], LABELS[2], "dead_letter_only_live"),
    ([page(1, "torn"), page(2)], [dead(1, "torn"), dead(2, "torn")], LABELS[3], "dead_letter_only_candidate"),
    # A dead letter has the record's text, which is no row, though it reads like one.
    ([page(1, "torn")], [dead(1, "torn"), dead(2, "torn")], LABELS[3], "dead_letter_only_candidate"),
]
"""Rows of both sides of which one is as a rule expects it, that rule, and the class of the other."""


def test_one_row_as_expected_and_one_otherwise(spark: SparkSession) -> None:
    cases: dict[str, Case] = {
        f"{number} {label}": (live, candidate, {"expected": 1, otherwise: 1, "fields": {"expected": {label: 1}}})
        for number, (live, candidate, label, otherwise) in enumerate(ONE_EACH)
    }
    check_cases(spark, cases, SIDES)


def test_a_rule_is_for_its_own_change_alone_and_the_first_that_is_met_counts(spark: SparkSession) -> None:
    rules = (RowRule(VANISH, "true"), RowRule(APPEAR, "candidate.id = 1"), RowRule(APPEAR, "candidate.id < 3"))
    live, candidate = [page(0), page(5), dead(6, "x")], [page(1), page(2), page(3), page(5, "other")]
    assert classes(spark, live, candidate, Sides(SCHEMA, SCHEMA, (), (), rules)) == {
        "expected": 3,
        "extra": 1,
        "changed": 1,
        "dead_letter_only_live": 1,
        "fields": {"expected": {rule.label: 1 for rule in rules}, "changed": {"page": 1}},
    }


@pytest.mark.parametrize(
    ("least", "most", "found", "wrong"),
    [(0, None, 0, 0), (2, None, 2, 0), (2, None, 0, 2), (0, 3, 3, 0), (0, 3, 5, 2), (1, 1, 1, 0), (0, 0, 4, 4)],
)
def test_a_count_outside_fails_the_verdict(least: int, most: int | None, found: int, wrong: int) -> None:
    rule = RowRule(VANISH, "true", least, most)
    fields = {"expected": {rule.label: found}} if found else {}
    told = counted(Found({"rows": 10, "expected": found}, fields), (rule,))
    assert told.counts == {"rows": 10, "expected": found, "miscounted": wrong}
    assert judge(told, 10) == (("fail", f"{wrong} miscounted") if wrong else ("pass", ""))


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            {"row_rules": (RULES[0], RowRule(VANISH, "live.none"))},
            "compare.rows.1: 'live.none' cannot be asked of both",
        ),
        ({"row_rules": (RowRule(VANISH, "live.page ="),)}, "compare.rows.0: 'live.page =' cannot be asked of both"),
        ({"row_rules": (RowRule(VANISH, "live.page"),)}, "compare.rows.0: 'live.page' is of type string. Make it a"),
        ({"expected": (ExpectedChange("page", "reason = 'x'"),)}, "compare.expected, page: \"reason = 'x'\" cannot be"),
    ],
)
def test_a_predicate_that_cannot_be_asked_is_refused(spark: SparkSession, declared: dict, problem: str) -> None:
    with pytest.raises(RefusedError) as refused:
        row_rules.check(spark, Pipeline("visits", "visits", "a STRING", "out", **declared), SCHEMA, SCHEMA)
    assert str(refused.value).startswith(problem)


def test_predicates_that_can_be_asked_are_taken(spark: SparkSession) -> None:
    change = ExpectedChange("page", "candidate.page = upper(live.page)")
    declared = Pipeline("visits", "visits", "a STRING", "out", expected=(change, ExpectedChange("id")), row_rules=RULES)
    row_rules.check(spark, declared, SCHEMA, SCHEMA)
