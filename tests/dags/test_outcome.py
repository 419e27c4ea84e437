"""What the end of a submit means (C18)."""

from __future__ import annotations

import pytest
from rewind_airflow.outcome import FAIL, RETRY, SUCCESS, WARNING, Seen, judge


@pytest.mark.parametrize(
    ("exit_code", "driver", "marked", "expected"),
    [
        # The submit is the driver.
        (0, None, True, SUCCESS),
        (0, None, False, RETRY),
        (1, None, True, WARNING),
        (1, None, False, RETRY),
        (75, None, False, RETRY),
        (73, None, False, RETRY),
        (-9, None, False, RETRY),
        (64, None, False, FAIL),
        (65, None, False, FAIL),
        (70, None, False, FAIL),
        # A job that leaves no marker.
        (0, None, None, SUCCESS),
        (1, None, None, RETRY),
        (64, None, None, FAIL),
        # A driver in the cluster.
        (0, "FINISHED", True, SUCCESS),
        (0, "FINISHED", False, RETRY),
        (1, "FINISHED", True, WARNING),
        (1, "FINISHED", None, WARNING),
        (None, "FINISHED", True, SUCCESS),
        (0, "FAILED", True, RETRY),
        (0, "KILLED", True, RETRY),
        (0, "UNKNOWN", True, RETRY),
        (0, "ERROR", None, RETRY),
        (0, "Succeeded", True, SUCCESS),
    ],
)
def test_outcome(exit_code, driver, marked, expected):
    assert judge(Seen(exit_code, driver, marked)).kind == expected


def test_a_good_exit_code_without_marker_says_so():
    assert (
        judge(Seen(0, None, False, "bye")).text == "exit code 0, but the registry holds no end marker of the job. bye"
    )


def test_the_last_words_of_a_refusal_are_its_text():
    assert judge(Seen(64, None, False, "from: is bad. Fix it")).text == "exit code 64. from: is bad. Fix it"


def test_the_state_of_the_driver_is_named():
    assert judge(Seen(0, "UNKNOWN", True)).text == "the driver ended UNKNOWN (exit code 0). "
