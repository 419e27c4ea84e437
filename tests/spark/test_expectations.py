"""Expectations on frames: exact counts and values, and no answer that is missing passes for one."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from rewind.core import lifecycle
from rewind.steps.compare import expectation_checks
from rewind.steps.compare.expectation_checks import Answer
from rewind.steps.compare.findings import Found

pytestmark = pytest.mark.full

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "text"}}
EARLY = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "day", "max_value": "2025-01-01"}}
SMALL = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "max_value": 100}}
FEW_TEXTS = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "text", "value_set": ["x"]}}
SOON = {
    "type": "expect_column_values_to_be_in_set",
    "kwargs": {"column": "at", "value_set": ["2025-01-01 00:00:00"]},
}
RAISES = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "no_such", "max_value": 1}}
FEW = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "expected", "max_value": 10}}


@pytest.fixture(scope="module")
def rows(session: SparkSession):
    """1,000 rows, 432 of them without a text."""
    session.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    made = session.range(1_000).selectExpr(
        "id",
        "if(id < 432, null, 'x') text",
        "cast(id as decimal(38,18)) / 3 amount",
        "timestamp '2025-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, id) at",
        "date '2025-01-01' + cast(id as int) day",
    )
    return made.cache()


@pytest.mark.shows("verdict", c43_unexpected_of_1000=432)
def test_c43_counts_are_exact_samples_capped_and_values_exact(rows, tmp_path):
    asked = {"output": [NOT_NULL, SMALL, EARLY, SOON]}
    found = expectation_checks.answers(asked, {"output": rows}, tmp_path / "docs")
    assert [answer.success for answer in found] == [False] * 4
    assert [answer.counted["unexpected_count"] for answer in found] == [432, 699, 999, 999]
    assert [len(answer.sample) for answer in found] == [20] * 4
    told = json.loads(json.dumps([asdict(answer) for answer in found]))
    assert told[0]["sample"] == [None] * 20
    assert told[1]["sample"][0].startswith("100.3333333333333")
    assert told[2]["sample"][0] == "2025-01-02"
    # Midnight in Paris.
    assert told[3]["sample"][0] == "2024-12-31T23:00:01+00:00"
    # A filtered frame is what is judged, not the whole.
    (filtered,) = expectation_checks.answers(
        {"output": [NOT_NULL]}, {"output": rows.where("id >= 900")}, tmp_path / "docs"
    )
    assert (filtered.success, filtered.counted["element_count"], filtered.counted["unexpected_count"]) == (True, 100, 0)
    assert not rows.sparkSession.catalog.listTables()
    assert (tmp_path / "docs" / "index.html").is_file()


def test_one_of_no_value_is_an_error_though_it_holds(rows, tmp_path):
    asked = {"output": [NOT_NULL, SMALL, FEW_TEXTS]}
    found = expectation_checks.answers(asked, {"output": rows.where("id < 0")}, tmp_path / "docs")
    assert [answer.success for answer in found] == [None] * 3
    # Rows are there, and no text in any of them.
    found = expectation_checks.answers(asked, {"output": rows.where("id < 9")}, tmp_path / "docs")
    assert [answer.success for answer in found] == [False, True, None]
    assert expectation_checks.gated(lifecycle.PASS, "", found)[0] == lifecycle.ERROR


@pytest.mark.shows("verdict", a_suite_whose_check_raises="error")
def test_one_that_raises_is_an_error_and_takes_no_other_away(rows, tmp_path):
    found = expectation_checks.answers({"output": [RAISES, NOT_NULL]}, {"output": rows}, tmp_path / "docs")
    assert [answer.success for answer in found] == [None, False]
    assert "no_such" in found[0].error
    verdict, reason = expectation_checks.gated(lifecycle.PASS, "", found)
    assert verdict == lifecycle.ERROR
    assert reason.startswith("expect_column_values_to_be_between of no_such has no answer: ")


def test_gates_are_asked_of_what_was_counted(spark, tmp_path):
    counts = {"rows": 30, "equal": 10, "expected": 12, "changed": 3, "missing": 5, "repeated_differently": 2}
    row = expectation_checks.summary(spark, Found(counts))
    assert row.first().asDict() == {**counts, "differences": 10}
    (answer,) = expectation_checks.answers({"differences": [FEW]}, {"differences": row}, tmp_path / "docs")
    assert (answer.success, answer.counted) == (False, {"observed_value": 12})
    assert answer.told() == "expect_column_max_to_be_between of expected does not hold"


class Suite:
    """A definition whose run gives fewer, or more, answers than it was asked for."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def results(self):
        return [
            SimpleNamespace(
                expectation_config=SimpleNamespace(meta={"number": number}),
                exception_info={"raised_exception": False},
                result={},
                success=True,
            )
            for number in self.numbers
        ]


@pytest.mark.parametrize(
    ("came", "unanswered"), [([0, 1], []), ([1], ["it came back 0 times"]), ([0, 0, 1], ["it came back 2 times"])]
)
def test_each_expectation_must_answer_once(came, unanswered):
    results = Suite(came).results()
    found = [
        expectation_checks._answer("output", NOT_NULL, expectation_checks._of(results, number)) for number in range(2)
    ]
    assert [answer.error for answer in found if answer.success is None] == unanswered
    assert expectation_checks.gated(lifecycle.PASS, "", found)[0] == (lifecycle.ERROR if unanswered else lifecycle.PASS)


UNMET = Answer("output", "expect_x", "", False, {})


@pytest.mark.parametrize(
    ("verdict", "found", "becomes"),
    [
        (lifecycle.PASS, [], (lifecycle.PASS, "")),
        (lifecycle.PASS, [UNMET], (lifecycle.FAIL, "expect_x of output does not hold")),
        (lifecycle.ERROR, [UNMET], (lifecycle.ERROR, "why; expect_x of output does not hold")),
    ],
)
def test_expectations_only_tighten_a_verdict(verdict, found, becomes):
    assert expectation_checks.gated(verdict, "why" if verdict == lifecycle.ERROR else "", found) == becomes
