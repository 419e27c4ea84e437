"""What a plan says that each task of its DAG will do, for each kind of plan and each thing that may be asked for."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

from rewind.core.planning import stages
from rewind.core.planning.plan import Request, explain
from rewind.core.planning.stages import IF_NEEDED, RUNS, SHAPES, SKIPPED, WAITS
from tests.support import installed

PROJECT = Path(__file__).resolve().parents[2]
WORK = ["plan", "go_on", "spin_up", "backfill"]
EXPECTED = {
    "rewind": (
        [*WORK, "start_candidate", "catch_up", "validate", "approve", "cut_over", "announce", "observe", "ended"],
        ["catch_up", "approve", "observe"],
        ["merge"],
    ),
    "repair": (
        [*WORK, "validate", "approve", "merge", "ended"],
        ["approve"],
        ["start_candidate", "catch_up", "cut_over", "announce", "observe", "roll_back"],
    ),
}
EXPECTED["release"] = EXPECTED["rewind"]
ASKED = list(itertools.product(SHAPES, ["tell", "roll_back"], [False, True]))


def tasks(plan, *does):
    return [stage.task for stage in plan.stages if stage.does in does]


@pytest.mark.shows("house", show_4_plans_explained=len(ASKED))
@pytest.mark.parametrize(("kind", "on_difference", "auto_approve"), ASKED)
def test_each_task_runs_waits_or_is_skipped(kind, on_difference, auto_approve):
    asked = Request("visits", on_difference=on_difference, auto_approve=auto_approve, observe_seconds=60)
    plan = installed.plan(kind=kind, request=asked)
    runs, waits, skipped = EXPECTED[kind]
    rolls_back = kind != "repair" and on_difference == "roll_back"
    never = [*skipped, *([] if rolls_back or kind == "repair" else ["roll_back"])]
    assert tasks(plan, RUNS, WAITS) == runs
    assert tasks(plan, WAITS) == waits
    assert sorted(tasks(plan, SKIPPED)) == sorted(never)
    assert tasks(plan, IF_NEEDED) == (["roll_back", "abort"] if rolls_back else ["abort"])
    lines = explain(plan)
    assert f"  tasks    {', '.join(runs)}" in lines
    assert [line.split()[1] for line in lines if line.startswith("  waits")] == waits
    person = "a person answers, unless the verdict is a pass" if auto_approve else "a person answers"
    assert f"  waits    approve until {person}" in lines


def test_what_nothing_is_compared_of_waits_for_a_person_whatever_was_asked_for():
    asked = Request("visits", compare="none", reason="the fix is known", auto_approve=True)
    assert "  waits    approve until a person answers" in explain(installed.plan(request=asked))


@pytest.mark.parametrize(
    ("start", "end", "kind"),
    [
        ("earliest", "", "rewind"),
        (" live ", "", "release"),
        ("live", "latest", "repair"),
        ("earliest", "+1d", "repair"),
    ],
)
def test_what_is_asked_for_has_a_kind(start, end, kind):
    assert stages.asked_for(start, end).kind == kind


def test_status_shows_the_recorded_tasks_of_a_kind():
    assert SHAPES["repair"].steps == ("plan", "spin_up", "backfill", "validate", "approve", "merge")
    taking_over = ("start_candidate", "catch_up", "validate", "approve", "cut_over", "observe")
    assert SHAPES["rewind"].steps == SHAPES["release"].steps == ("plan", "spin_up", "backfill", *taking_over)


KINDS = {"REWIND", "REPAIR", "RELEASE"}


def compared_kinds(source):
    """Return the lines of a source that hold a plan's kind against a name or text of one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [part for side in (node.left, *node.comparators) for part in getattr(side, "elts", [side])]
            names = {getattr(side, "id", getattr(side, "attr", "")) for side in sides}
            texts = {side.value for side in sides if isinstance(side, ast.Constant)}
            if names & KINDS or ("kind" in names and texts & set(SHAPES)):
                found.append(node.lineno)
    return found


@pytest.mark.shows("house", show_1_kinds_compared_outside_their_module=0)
def test_no_other_module_tells_the_kinds_of_plans_apart():
    tops = (PROJECT / name for name in ("include/rewind", "dags", "jobs", "plugins", "examples"))
    sources = {p: p.read_text() for top in tops for p in top.rglob("*.py") if p.name != "stages.py"}
    assert {str(path): lines for path, text in sources.items() if (lines := compared_kinds(text))} == {}
    assert [str(path) for path, text in sources.items() if "thaw(" in text] == []


def test_a_kind_that_is_compared_is_found():
    lines = ["if plan.kind == REPAIR: pass", "if plan.kind == 'release': pass", "if kind in (REWIND, x): pass"]
    assert compared_kinds("\n".join(lines)) == [1, 2, 3]
    assert compared_kinds("if entry.kind == manifest.TOPIC: pass") == []
