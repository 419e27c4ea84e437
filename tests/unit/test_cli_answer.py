"""`approve`, and `plan` waiting for its plan: what a person sees, what Airflow is told, what is refused before."""

from __future__ import annotations

import json
import sys

import pytest

from rewind.cli import answer, context, main, planning
from rewind.registry import database, verdicts
from tests.support import installed
from tests.support.installed import BIG, DAG, DRY_RUN, REWIND_ID, RUN, FakeAirflow


@pytest.fixture
def stage(tmp_path, monkeypatch):
    for name, value in installed.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(answer, "LOOK_SECONDS", 0)
    monkeypatch.setattr(planning, "LOOK_SECONDS", 0)

    def made(verdict="pass", reason=""):
        airflow = FakeAirflow(installed.seed(tmp_path, verdict, reason))
        monkeypatch.setattr(context, "airflow_api", lambda: airflow)
        return airflow

    return made


def at_a_terminal(monkeypatch, *lines):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    given = iter(lines)
    monkeypatch.setattr("builtins.input", lambda *_: next(given))


def recorded(airflow):
    with database.writing(airflow.settings.registry_url) as connection:
        return verdicts.approval(connection, REWIND_ID)


def test_the_verdict_is_shown_and_the_answer_given_and_recorded(stage, capsys):
    airflow = stage()
    assert main.main(["approve", REWIND_ID, "--yes"]) == 0
    assert airflow.answers == [(DAG, RUN, "approve", ("Approve",), {"reason": ""})]
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("verdict pass")
    assert f"equal    {BIG - 1:,}" in text
    assert text.splitlines()[-1] == f"{REWIND_ID}: approve by ada"


def test_a_fail_asks_for_a_reason_and_then_once_more(stage, monkeypatch, capsys):
    airflow = stage("fail", "1 changed")
    at_a_terminal(monkeypatch, "the old rates were wrong", "y")
    assert main.main(["approve", REWIND_ID]) == 0
    assert airflow.answers[0][4] == {"reason": "the old rates were wrong"}
    assert recorded(airflow).reason == "the old rates were wrong"
    asked = capsys.readouterr().out
    assert "Why? Such a verdict is answered with a reason: " in asked
    assert "Let visits_converter-g3 take the place of visits_converter-g2? [y/N] " in asked


def test_a_fail_without_a_reason_is_refused_before_airflow_is_told(stage, capsys):
    airflow = stage("fail", "1 changed")
    assert main.main(["approve", REWIND_ID, "--yes"]) == 64
    assert "error: reason: a failed verdict needs a person and a reason" in capsys.readouterr().err
    # Airflow checks its form whatever the answer is, and an answer that it cannot take ends the rewind.
    assert main.main(["approve", REWIND_ID, "--reject", "--yes"]) == 64
    assert "error: reason: is empty" in capsys.readouterr().err
    assert airflow.answers == []


def test_an_error_cannot_be_approved_but_rejected(stage, capsys):
    airflow = stage("error", "the output is gone")
    assert main.main(["approve", REWIND_ID, "--yes", "--reason", "I insist"]) == 64
    assert airflow.answers == []
    assert main.main(["approve", REWIND_ID, "--reject", "--reason", "no", "--yes"]) == 0
    assert airflow.answers == [(DAG, RUN, "approve", ("Reject",), {"reason": "no"})]


@pytest.mark.parametrize("said", ["n", "", "what"])
def test_what_is_not_confirmed_is_not_answered(stage, monkeypatch, capsys, said):
    airflow = stage()
    at_a_terminal(monkeypatch, said)
    assert main.main(["approve", REWIND_ID]) == 64
    assert airflow.answers == []


def test_without_a_terminal_yes_must_be_given(stage, capsys):
    airflow = stage()
    assert main.main(["approve", REWIND_ID]) == 64
    assert capsys.readouterr().err.startswith("error: --yes: is not given")
    assert airflow.answers == []


def test_an_answer_that_airflow_loses_is_given_again(stage):
    airflow = stage()
    airflow.lost = 2
    assert main.main(["approve", REWIND_ID, "--yes"]) == 0
    assert len(airflow.answers) == 3
    assert recorded(airflow).person == "ada"


def test_as_json_only_the_answer_is_on_stdout(stage, capsys):
    stage()
    assert main.main(["approve", REWIND_ID, "--yes", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "rewind_id": REWIND_ID,
        "attempt": 1,
        "answer": "approve",
        "person": "ada",
        "reason": "",
    }
    assert "verdict pass" in captured.err


def test_a_question_that_does_not_wait_is_75(stage, capsys):
    airflow = stage()
    airflow.asks = False
    assert main.main(["approve", REWIND_ID, "--yes"]) == 75
    assert "does not wait for an answer" in capsys.readouterr().err


def test_what_is_answered_or_unknown_is_refused(stage, capsys):
    airflow = stage()
    assert main.main(["approve", "rw-9", "--yes"]) == 64
    assert main.main(["approve", REWIND_ID, "--yes"]) == 0
    assert main.main(["approve", REWIND_ID, "--yes"]) == 64
    assert "has the answer approve by ada" in capsys.readouterr().err
    assert len(airflow.answers) == 1


def test_plan_waits_and_shows_the_plan(stage, capsys):
    airflow = stage()
    assert main.main(["plan", "visits_converter", "--from", "P1D"]) == 0
    assert airflow.runs == [(DAG, {"from": "P1D", "dry_run": True})]
    assert capsys.readouterr().out.startswith(f"Plan {installed.plan().id}: rewind of visits_converter")
    assert main.main(["plan", "visits_converter", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["id"], body["records"], body["end"]) == (installed.plan().id, BIG, {"0": BIG})


def test_plan_that_does_not_wait_tells_the_run(stage, capsys):
    stage()
    assert main.main(["plan", "visits_converter", "--no-wait", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["dag_id"], body["run_id"], body["rewind"][:3]) == (DAG, DRY_RUN, "rw-")


def test_a_refused_plan_is_64_with_its_reason(stage, capsys):
    airflow = stage()
    airflow.state, airflow.plan_evidence = "failed", {"error": "RefusedError: from: is inverted"}
    assert main.main(["plan", "visits_converter"]) == 64
    assert capsys.readouterr().err.startswith("error: plan: RefusedError: from: is inverted. Look at the log")


def test_a_run_that_never_planned_is_1(stage, capsys):
    airflow = stage()
    airflow.state, airflow.plan_evidence = "failed", None
    assert main.main(["plan", "visits_converter"]) == 1
    assert f"{DAG}: run {DRY_RUN} ended as failed without a plan" in capsys.readouterr().err


def test_start_has_no_dry_run_and_plan_no_plan_to_apply(stage, capsys):
    for command in (["start", "visits_converter", "--dry-run"], ["plan", "visits_converter", "--apply-plan", "a" * 12]):
        with pytest.raises(SystemExit):
            main.main(command)
