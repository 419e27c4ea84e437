"""A verdict over nothing is no pass, whether rows, values or states were not there; nothing compared by choice."""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from sqlalchemy import update

from rewind.cli import render
from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.core.horizon import Frontier
from rewind.core.offsets import OffsetRange
from rewind.core.planning import plan
from rewind.core.planning.plan import Request
from rewind.declared import forms
from rewind.registry import check_results, generations, leases, rewinds, schema, streams, verdicts
from rewind.registry.database import now, writing
from rewind.registry.snapshot import snapshot
from rewind.registry.verdicts import Verdict
from rewind.runtime import announce, evidence
from rewind.steps.compare import expectation_checks, new_rows, state_comparison
from rewind.steps.compare.expectation_checks import NOT_EXAMINED
from rewind.steps.compare.findings import Found, judge
from rewind.steps.compare.nothing_compared import awaited, cure
from rewind.steps.compare.state_comparison import ANOTHER, StateFound
from rewind.steps.lifecycle import validate
from tests.support import fakes
from tests.support.fakes import PIPELINE, generation, installation

LIVE, CANDIDATE = f"{PIPELINE.name}-g1", f"{PIPELINE.name}-g2"
WHY = "live was quarantined at offset 0"
TOLD = f"nothing was compared, as the rewind asks (compare: none): {WHY}"


@pytest.mark.parametrize(
    ("counts", "records", "verdict", "reason"),
    [
        # F02: live stood still at offset 0.
        (
            {"rows": 0, "open": 4_225},
            0,
            "error",
            "nothing was compared: there is no record that both jobs have processed (4225 rows lie beyond)",
        ),
        ({"rows": 0}, 0, "error", "nothing was compared: there is no record that both jobs have processed"),
        ({"rows": 0}, 5, "error", "nothing was compared, though the plan expected 5 records"),
        (
            {"rows": 0, "open": 2},
            5,
            "error",
            "nothing can be compared yet: 2 are open, and close when a record of later event time or offset comes",
        ),
        # F26: dead letters alone on both sides.
        (
            {"rows": 3, "equal": 3, "dead_letters": 3},
            3,
            "error",
            "nothing was compared but 3 dead letters, which are the same on both sides",
        ),
        (
            {"rows": 3, "equal": 3, "dead_letters": 3, "open": 1},
            3,
            "error",
            "nothing can be compared yet: 1 are open, and close when a record of later event time or offset comes",
        ),
        ({"rows": 4, "equal": 4, "dead_letters": 3}, 4, "pass", ""),
        # Rows of live that a rule lets enter the dead letters were looked at.
        ({"rows": 3, "equal": 2, "expected": 1, "dead_letters": 3}, 3, "pass", ""),
        ({"rows": 3, "equal": 2, "dead_letter_only_candidate": 1, "dead_letters": 3}, 3, "fail", None),
    ],
)
def test_what_is_no_pass(counts, records, verdict, reason):
    found = judge(Found(counts), records)
    assert found[0] == verdict
    assert reason is None or found[1] == reason


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now, self.looks = 1_000.0, 0

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def look(self, first: float):
        self.looks += 1
        return {0: OffsetRange(7, 8 if self.now >= first else 7)}


@pytest.mark.parametrize(
    ("first", "looks", "offsets", "waited"), [(0, 1, 1, 0), (1_009, 6, 1, 10), (1_060, 31, 1, 60), (1_061, 31, 0, 60)]
)
def test_first_records_are_waited_for_a_minute_at_most(first, looks, offsets, waited):
    clock = Clock()
    found = awaited(lambda: clock.look(first), lambda: clock.now, clock.pause)
    assert (clock.looks, len(found[0]), clock.now) == (looks, offsets, 1_000 + waited)


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


def test_what_to_do_is_told_by_lives_driver(settings):
    live = generation()
    with writing(settings.registry_url) as connection:
        streams.wish(connection, LIVE, streams.GENERATION, streams.RUN)
        for _ in range(streams.MOST_FAILURES):
            streams.count_failure(connection, LIVE, "boom")
    none = ", or rewind with compare: none and a reason"
    assert cure(settings, live) == f"{LIVE} has no driver (quarantined): bring it back and run validate again{none}"
    # This process stands for a driver that is starting.
    this = leases.process_of(os.getpid())
    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, LIVE, asdict(this))
    assert cure(settings, live) == f"run validate again once both have answered records{none}"


def result(**said):
    made = SimpleNamespace(result=said, success=True, exception_info={"raised_exception": False})
    return expectation_checks._answer("output", {"type": "expect_x", "kwargs": {"column": "page"}}, [made])


@pytest.mark.parametrize(
    ("said", "success"),
    [
        ({"element_count": 0, "unexpected_count": 0}, None),
        ({"element_count": 5, "missing_count": 5, "unexpected_count": 0}, None),
        ({"element_count": 5, "missing_count": 4, "unexpected_count": 0}, True),
        # Whether it is null is asked of nulls too: it counts none as missing.
        ({"element_count": 5, "unexpected_count": 0}, True),
        ({"observed_value": None}, None),
        ({"observed_value": []}, None),
        ({"observed_value": 0}, True),
        ({}, True),
    ],
)
def test_an_expectation_of_no_value_has_no_answer(said, success):
    answer = result(**said)
    assert (answer.success, answer.error) == (success, "" if success else NOT_EXAMINED)
    verdict = expectation_checks.gated(lifecycle.PASS, "", [answer])
    why = f"expect_x of page has no answer: {NOT_EXAMINED}"
    assert verdict == ((lifecycle.PASS, "") if success else (lifecycle.ERROR, why))


COUNTS = dict.fromkeys(("equal", "missing", "extra", "changed", "late", "ahead", "evicted", "warm_up"), 0)
IDLE = f"{CANDIDATE} has no committed batch yet"
NO_KEY = "no key has had equal input in both jobs and is open in both"
AGAIN = "; run validate again once both have committed batches"


@pytest.mark.parametrize(
    ("found", "before", "becomes"),
    [
        (StateFound(not_compared=IDLE), "pass", ("error", f"the states were not compared: {IDLE}{AGAIN}")),
        (
            StateFound({"0-save": COUNTS}, not_compared=NO_KEY),
            "pass",
            ("error", f"the states were not compared: {NO_KEY}{AGAIN}"),
        ),
        # There, but one job is ahead in each: told, and no error, for it may be so at every look.
        (
            StateFound({"0-save": {**COUNTS, "ahead": 3}}, not_compared=NO_KEY),
            "pass",
            ("pass", f"the states were not compared: {NO_KEY}"),
        ),
        (StateFound(not_compared=ANOTHER), "pass", ("pass", f"the states were not compared: {ANOTHER}")),
        (StateFound(not_compared=ANOTHER), "fail", ("fail", f"the states were not compared: {ANOTHER}")),
        (StateFound({"0-save": {**COUNTS, "equal": 3}}), "pass", ("pass", "")),
    ],
)
def test_states_that_were_not_there_are_an_error(found, before, becomes):
    assert state_comparison.gated(before, "", found, PIPELINE) == becomes


@pytest.mark.shows("truth", f02="an error that says why")
def test_a_check_with_an_empty_horizon_is_an_error_that_says_what_to_do(opened, monkeypatch):
    looks = []
    monkeypatch.setattr(validate, "session", lambda *_: None)
    monkeypatch.setattr(validate.rights, "before_comparing", lambda *_: None)
    monkeypatch.setattr(validate, "horizon_of", lambda *_: {0: OffsetRange(7, 7)})
    monkeypatch.setattr(validate.nothing_compared, "awaited", lambda look: looks.append(look()) or looks[0])
    monkeypatch.setattr(validate.resumed, "go_on", lambda *_: None)
    found = Found({"rows": 0, "equal": 0, "expected": 0, "changed": 0, "open": 4_225})
    monkeypatch.setattr(validate.comparison, "compared", lambda *_: found)
    with writing(opened.registry_url) as connection:
        rewinds.store_plan(connection, fakes.plan())
        connection.execute(update(schema.rewinds).values(plan_id=fakes.plan().id))
    told = validate._validate(opened, "rw-1", 1)
    why = "nothing was compared: there is no record that both jobs have processed (4225 rows lie beyond)"
    cure = (
        f"{LIVE} has no driver (none): bring it back and run validate again, or rewind with compare: none and a reason"
    )
    assert looks == [{0: OffsetRange(7, 7)}]
    assert (told["verdict"], told["reason"]) == ("error", f"{why}; {cure}")
    with snapshot(opened.registry_url) as connection, pytest.raises(RefusedError, match="the verdict is an error"):
        verdicts.check_approvable(verdicts.newest(connection, "rw-1"), "ada", "why not")


# --- compare: none


def test_nothing_is_compared_only_for_a_reason():
    asked = {"compare": "none", "reason": WHY}
    assert forms.parse("visits", asked) == Request("visits", reason=WHY, compare="none")
    assert forms.parse("visits", {}).compare == "rows"
    with pytest.raises(RefusedError, match="reason: is empty, and compare is none"):
        forms.parse("visits", {"compare": "none"})
    for reason in ("", "  \n"):
        with pytest.raises(RefusedError) as refused:
            forms.parse("visits", {**asked, "reason": reason})
        assert refused.value.field == "reason"
    with pytest.raises(RefusedError, match="on_difference: is roll_back, and compare is none"):
        forms.parse("visits", {**asked, "on_difference": "roll_back"})
    assert forms.parse("visits", {"on_difference": "roll_back"}).on_difference == "roll_back"


def made_plan():
    return fakes.plan(request=Request(PIPELINE.name, reason=f" {WHY}", compare="none", auto_approve=True))


def test_the_plan_says_so():
    line = f"  compare  nothing, and a person has to approve; why: {WHY}"
    assert line in plan.explain(made_plan())
    assert not [line for line in plan.explain(fakes.plan()) if line.startswith("  compare")]
    assert plan.from_json(made_plan().to_json()) == made_plan()
    older = json.loads(fakes.plan().to_json())
    del older["request"]["compare"]
    assert plan.from_json(json.dumps(older)).request.compare == "rows"


@pytest.fixture
def opened(settings):
    with writing(settings.registry_url) as connection:
        rewinds.store_plan(connection, made_plan())
        generations.create(connection, generation(state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, LIVE)
        rewinds.open_rewind(connection, "rw-1", made_plan())
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), "rw-1")
        rewinds.end_step(connection, "rw-1", "backfill", rewinds.begin_step(connection, "rw-1", "backfill"), "done", {})
    return settings


def test_a_check_of_nothing_reads_nothing_and_says_so(opened, monkeypatch):
    monkeypatch.setattr(validate, "session", lambda *_: pytest.fail("it began to read"))
    told = validate._validate(opened, "rw-1", 1)
    assert (told["verdict"], told["reason"], told["counts"]) == ("none", TOLD, {"rows": 0})
    with snapshot(opened.registry_url) as connection:
        made = verdicts.newest(connection, "rw-1")
        check = check_results.identity(generation(state="live"), generation(number=2, state="candidate"), 1)
        assert check_results.last(connection, "rw-1", check) is None
    assert (made.verdict, made.reason, made.floor, made.ceiling) == ("none", TOLD, {}, {})
    folder = evidence.folder_of(opened, "rw-1")
    assert json.loads((folder / "verdict-1.json").read_text())["about"]["compare"] == "none"
    page = (folder / "verdict-1.html").read_text()
    assert "<h2>Nothing was compared</h2>" in page
    assert "What came out" not in page
    assert page.count(TOLD) == 1


def test_what_comes_later_is_compared_with_nothing_either(opened, monkeypatch):
    monkeypatch.setattr(new_rows, "session", lambda *_: pytest.fail("it began to read"))
    monkeypatch.setattr(new_rows.progress, "position", lambda *_: {0: 100})
    frontier = Frontier({})
    found = new_rows.compared_since(opened, made_plan(), generation(), generation(number=2), frontier)
    assert (dict(found.found.counts), found.frontier) == ({"rows": 0}, frontier)


def uncompared(**changes):
    made = Verdict(1, 1, "none", {}, {}, {"rows": 0}, [], TOLD, now())
    return replace(made, **changes)


def test_it_is_approved_by_a_person_with_a_reason_which_is_kept(opened):
    with writing(opened.registry_url) as connection:
        verdicts.store(connection, "rw-1", uncompared())
        for person, reason in (("", "why"), ("ada", " ")):
            with pytest.raises(RefusedError, match="a verdict of which nothing was compared needs a person and a rea"):
                verdicts.answer(connection, "rw-1", "approve", person, reason)
        verdicts.answer(connection, "rw-1", "approve", "ada", "live is dead")
        given = verdicts.approval(connection, "rw-1")
        assert (given.person, given.reason) == ("ada", "nothing was compared: live is dead")
        assert verdicts.approved(connection, "rw-1").verdict == "none"


def test_a_rejection_keeps_its_own_words(opened):
    with writing(opened.registry_url) as connection:
        verdicts.store(connection, "rw-1", uncompared())
        verdicts.answer(connection, "rw-1", "reject", "ada", "no")
        assert verdicts.approval(connection, "rw-1").reason == "no"


@pytest.mark.parametrize(("verdict", "field"), [("none", TOLD), ("pass", None)])
def test_readers_are_told_with_the_switch(opened, verdict, field):
    with writing(opened.registry_url) as connection:
        announce.prepare(connection, PIPELINE.name, 2, LIVE, CANDIDATE, uncompared(verdict=verdict))
        assert announce.body(connection, PIPELINE.name, 2).get("not_compared") == field


def printed(*parts):
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(*parts, sep="\n")
    return console.export_text()


def test_the_commands_say_so():
    assert render.came_out(uncompared()) == TOLD
    assert render.came_out(uncompared(verdict="error", reason="why")) == "rows 0; why"
    assert render.came_out(uncompared(verdict="fail", reason="why")) == "rows 0"
    assert printed(*render.verdict_parts(made_plan(), uncompared())).split() == ["verdict", "none", *TOLD.split()]
