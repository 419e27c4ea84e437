"""Lateness is gated apart: it alone fails no verdict, unless more results differ by it than the pipeline allows."""

from __future__ import annotations

import pytest

from rewind.steps.compare.findings import Found, judge


def found(**counts):
    return Found({"rows": 100, "equal": 100 - counts.get("late", 0), **counts})


@pytest.mark.parametrize(
    ("late", "share", "verdict"), [(100, 1.0, "pass"), (5, 0.05, "pass"), (6, 0.05, "fail"), (1, 0.0, "fail")]
)
def test_a_share_of_late_results(late, share, verdict):
    assert judge(found(late=late), 1_000, share)[0] == verdict


def test_the_reason_tells_both():
    assert judge(found(late=6), 1_000, 0.05)[1] == "6 late of 100: more than a share of 0.05"


def test_a_difference_of_another_kind_fails_whatever_is_late():
    assert judge(found(late=6, changed=1), 1_000, 1.0) == ("fail", "1 changed")
