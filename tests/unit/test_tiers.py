"""Which tier runs a test: what is left to acceptance is a line of an issue, and dear tests go in parts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support import tiers


def item(nodeid: str, *marks: str) -> SimpleNamespace:
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: name if name in marks else None)


def test_what_acceptance_alone_runs_is_a_line_of_an_issue():
    lost, line = item("tests/spark/test_a.py::test_lost", "acceptance"), "tests/spark/test_a.py::test_line"
    with pytest.raises(pytest.UsageError, match=r"needs a mark `shows`: tests/spark/test_a\.py::test_lost$"):
        tiers.pytest_collection_modifyitems([lost, item(line, "acceptance", "shows")])
    tiers.pytest_collection_modifyitems([item(line, "acceptance", "shows"), item("tests/acceptance/test_x.py::a")])
    tiers.pytest_collection_modifyitems([item("tests/acceptance/test_x.py::a", "acceptance")])


def test_schedulers_go_first_and_then_whole_files_by_what_they_took(monkeypatch):
    monkeypatch.setattr(tiers, "recorded", lambda: {"tests/b.py::x": 3.0, "tests/b.py::y": 3.0, "tests/a.py::x": 5.0})
    names = ["tests/a.py::x", "tests/b.py::x", "tests/new.py::x", "tests/stage/test_s.py::x", "tests/b.py::y"]
    items = [item(name) for name in names]
    tiers.pytest_collection_modifyitems(items)
    assert [one.nodeid for one in items] == [names[3], names[1], names[4], names[0], names[2]]


@pytest.mark.parametrize(
    ("split", "marks"),
    [(tiers.one_soon, ["", "full", "full"]), (tiers.one_in_all, ["full", "acceptance", "acceptance"])],
)
def test_the_first_case_of_a_dear_test_runs_in_the_tier_before(split, marks):
    made = split((number,) for number in range(3))
    assert [param.values for param in made] == [(0,), (1,), (2,)]
    assert ["".join(mark.name for mark in param.marks) for param in made] == marks
