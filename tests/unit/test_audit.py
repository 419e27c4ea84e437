"""Who did what: one line for each act, told to those who see its pipeline."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rewind.cli.main import main
from rewind.core import lifecycle
from rewind.registry import adjustments, audit, generations, rewinds, streams, verdicts
from rewind.registry.audit import Act
from rewind.registry.database import now, writing
from tests.support.fakes import generation, installation, plan

PROJECT = Path(__file__).resolve().parents[2]
LIVE = "visits_converter-g1"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    made = installation(tmp_path / "home")
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    for key, value in made.environment().items():
        monkeypatch.setenv(key, value)
    with writing(made.registry_url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, LIVE)
        streams.wish(connection, LIVE, streams.GENERATION, streams.RUN)
        rewinds.open_rewind(connection, "rw-1", plan())
    return made


def noted(settings):
    with writing(settings.registry_url) as connection:
        return [(a.person, a.action, a.pipeline, a.subject, a.said) for a in audit.read(connection, None)]


def test_what_is_steered_is_noted_with_its_person(settings):
    adjustments.pause(settings.registry_url, "rw-1", "ada", paused=True)
    adjustments.throttle(settings.registry_url, "rw-1", "bob", 50)
    for command in (["resume", "rw-1"], ["finish", "rw-1"], ["drain", LIVE], ["run", LIVE]):
        assert main(command) == 0
    of = ("visits_converter", "rw-1")
    assert noted(settings)[::-1] == [
        ("ada", "pause", *of, {}),
        ("bob", "throttle", *of, {"records_per_second": 50}),
        ("ann", "resume", *of, {}),
        ("ann", "finish", *of, {}),
        ("ann", "drain", "visits_converter", LIVE, {}),
        ("ann", "run", "visits_converter", LIVE, {}),
    ]


def test_what_is_refused_is_not_noted(settings):
    assert main(["pause", "rw-none"]) == 64
    assert noted(settings) == []


def test_an_answer_is_noted_once(settings):
    made = verdicts.Verdict(1, 1, "fail", {0: 0}, {0: 10}, {"changed": 1}, [], "1 changed", now())
    with writing(settings.registry_url) as connection:
        verdicts.store(connection, "rw-1", made)
        for _ in range(2):
            verdicts.answer(connection, "rw-1", "approve", "ada", "known")
    said = {"verdict": "fail", "attempt": 1, "reason": "known"}
    assert noted(settings) == [("ada", "approve", "visits_converter", "rw-1", said)]


def test_a_run_is_noted_once_however_often_its_task_is_tried(settings):
    with writing(settings.registry_url) as connection:
        for person in ("ada", "bob"):
            audit.note(connection, Act(person, "plan", "visits", "rw-2", {"from": "P1D"}), "rewind_visits/r1")
        audit.note(connection, Act("ada", "plan", "visits", "rw-3"), "rewind_visits/r2")
        audit.note(connection, Act("ada", "pause", "visits", "rw-3"))
        audit.note(connection, Act("ada", "pause", "visits", "rw-3"))
        lines = audit.read(connection, 10)
    assert [(a.person, a.action, a.run) for a in lines] == [
        ("ada", "pause", ""),
        ("ada", "pause", ""),
        ("ada", "plan", "rewind_visits/r2"),
        ("ada", "plan", "rewind_visits/r1"),
    ]


def test_the_newest_of_some_pipelines_are_read(settings):
    with writing(settings.registry_url) as connection:
        for number in range(6):
            audit.note(connection, Act("ada", "plan", ("visits", "orders", "")[number % 3], str(number)))
        assert [a.subject for a in audit.read(connection, 2)] == ["5", "4"]
        assert [a.subject for a in audit.read(connection, None, ["visits"])] == ["3", "0"]
        assert audit.read(connection, None, []) == []
        assert len(audit.read(connection, None)) == 6


def test_the_command_tells_them_and_exports_all(settings, capsys):
    hostile = 'a\0b "c" <img> \ud800'
    with writing(settings.registry_url) as connection:
        for number in range(60):
            audit.note(connection, Act("ada", "plan", "visits", f"rw-{number}", {"reason": hostile}))
    capsys.readouterr()
    assert main(["audit", "visits", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 50
    assert main(["audit", "--all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [line["subject"] for line in found] == [f"rw-{number}" for number in reversed(range(60))]
    assert {line["said"]["reason"] for line in found} == {hostile}
    assert main(["audit", "orders"]) == 0
    assert "ada" not in capsys.readouterr().out


def test_nothing_changes_or_deletes_a_line():
    code = [
        path.read_text() for path in (PROJECT / "include" / "rewind").rglob("*.py") if "migrations" not in path.parts
    ]
    assert sum(len(re.findall(r"schema\.audit\b", text)) for text in code) == 1, "registry.audit alone knows the table"
    text = (PROJECT / "include/rewind/registry/audit.py").read_text()
    assert re.findall(r"\b(update|delete|drop)\b", text.replace("never deleted", "")) == []
