"""The tool that plants faults, on a checkout of one rule; and that all faults of the catalogue fit the code."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.mutants import contained, coverage_map, table, trial
from tests.mutants.catalogue import FAULTS
from tests.mutants.coverage_map import Map, Test
from tests.mutants.fault import COMPARISON, GUARD, Fault, UnfitError, changed, locate
from tests.mutants.run import Run, unfit
from tests.mutants.trial import CAUGHT, ERROR, HUNG, SURVIVED, UNREACHED, Verdict
from tests.mutants.warm import Warm

PROJECT = Path(__file__).resolve().parents[2]
RULE = """\
def positive(number):
    if number < 0:
        raise ValueError(number)
    return number


class Limit:
    def check(self, number):
        return number <= 3


class Floor:
    def check(self, number):
        return number >= 0
"""
TESTS = """\
import pytest
from rewind.core import rule

@pytest.fixture(scope="module")
def limit():
    return rule.Limit().check(3)

def test_a_positive_number():
    assert rule.positive(1) == 1

@pytest.mark.parametrize("number", [-1], ids=["a|b"])
def test_a_negative_number(number):
    with pytest.raises(ValueError):
        rule.positive(number)

def test_something_else():
    pass

def test_the_limit(limit):
    assert limit

def test_that_fails_anyway():
    rule.positive(2)
    raise AssertionError
"""
FILE = "tests/unit/test_rule.py"
LOST = Fault("negative-taken", GUARD, "positive", "if number < 0:", "if False:")
EQUAL = Fault("nothing-changed", COMPARISON, "rule.positive", "number < 0", "0 > number")
NOWHERE = Fault("floor-itself-refused", COMPARISON, "Floor.check", "number >= 0", "number > 0")
BELOW = Fault("limit-itself-refused", COMPARISON, "Limit.check", "number <= 3", "number < 3")


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    for name, text in {"include/rewind/core/rule.py": RULE, FILE: TESTS, ".gitignore": ".rewind/\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "pytest.ini").write_text("[pytest]\npythonpath = include .\naddopts = --import-mode=importlib\n")
    shutil.copytree(PROJECT / "tests/mutants", root / "tests/mutants", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests/__init__.py").touch()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


@pytest.fixture
def namespaces():
    """Namespaces that faults are contained in."""
    try:
        contained.check()
    except contained.NotContainedError as error:
        pytest.skip(str(error))


def test_faults_are_given_to_the_tests_that_run_through_them_and_a_run_goes_on(
    checkout, namespaces, monkeypatch, capsys
):
    first = Run(checkout, ["tests/unit"], workers=1)
    first.measure()
    verdicts = first.judge([LOST, EQUAL])
    assert (verdicts[LOST.name].outcome, verdicts[LOST.name].test) == (CAUGHT, f"{FILE}::test_a_negative_number[a|b]")
    assert (verdicts[EQUAL.name].outcome, verdicts[EQUAL.name].tried) == (SURVIVED, 2)
    # Measured in a fixture of the whole module, and given to the test that uses it.
    below = first.judge([BELOW])[BELOW.name]
    assert (below.outcome, below.test, below.tried) == (CAUGHT, f"{FILE}::test_the_limit", 1)
    assert first.judge([NOWHERE])[NOWHERE.name].outcome == UNREACHED
    assert f"left out as they fail without any fault: {FILE}::test_that_fails_anyway" in capsys.readouterr().out
    assert (checkout / "include/rewind/core/rule.py").read_text() == RULE
    doubtful = {**verdicts, "odd": Verdict("odd", CAUGHT, f"{FILE}::test_that_fails_anyway")}
    confirmed = first.confirmed(doubtful)
    assert {name: verdict.outcome for name, verdict in confirmed.items()} == {
        LOST.name: CAUGHT,
        EQUAL.name: SURVIVED,
        "odd": ERROR,
    }

    monkeypatch.setattr(coverage_map, "measure", lambda *_: pytest.fail("all is measured already"))
    monkeypatch.setattr(trial, "run", lambda *_: pytest.fail("all is known already"))
    again = Run(checkout, ["tests/unit"], workers=1)
    again.measure()
    assert again.judge([LOST, EQUAL]) == verdicts

    (checkout / FILE).write_text(TESTS + "\n\ndef test_more():\n    pass\n")
    changed_test = Run(checkout, ["tests/unit"], workers=1)
    assert changed_test.store.stale(changed_test.test_files) == [FILE]
    assert changed_test.results.kept(LOST, [FILE]) is None


REACHING = """\
import os, shutil, socket
import pytest
from rewind.core import rule

def test_that_wants_to_harm(tmp_path):
    rule.positive(1)
    (tmp_path / "own").write_text("")
    with pytest.raises(OSError):
        open(os.environ["OUTSIDE"] + "/made", "w")
    with pytest.raises(OSError):
        shutil.rmtree(os.environ["OUTSIDE"])
    with pytest.raises(ProcessLookupError):
        os.kill(int(os.environ["PROCESS"]), 9)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), timeout=5)
    os.kill(os.getppid(), 9)
    assert False, "all of it was refused"
"""


def test_what_is_planted_reaches_nothing_of_the_machine(checkout, namespaces, tmp_path, monkeypatch):
    (checkout / FILE).write_text(REACHING)
    outside = tmp_path / "outside"
    outside.mkdir()
    with subprocess.Popen(["sleep", "60"]) as other, socket.create_server(("127.0.0.1", 0)) as server:
        for name, value in {"OUTSIDE": outside, "PROCESS": other.pid, "PORT": server.getsockname()[1]}.items():
            monkeypatch.setenv(name, str(value))
        warm = Warm(checkout, tmp_path / "tmp")
        verdict = trial.run(warm, EQUAL, [Test(f"{FILE}::test_that_wants_to_harm", 1.0, False)])
        warm.close()
        assert other.poll() is None
        other.kill()
    assert (verdict.outcome, verdict.test) == (CAUGHT, f"{FILE}::test_that_wants_to_harm"), verdict
    assert "AssertionError: all of it was refused" in (tmp_path / "tmp/logs" / f"{EQUAL.name}.log").read_text()
    assert list(outside.iterdir()) == []


def test_a_fault_that_does_not_fit_is_an_error_and_no_survivor(checkout):
    gone = Fault("gone", GUARD, "positive", "if number < 1:", "if False:")
    assert unfit(checkout, [LOST, gone]) == [
        "gone: 'if number < 1:' must stand once in one positive, but stands 0 times in rewind.core.rule.positive"
    ]
    warm = SimpleNamespace(copied=checkout, temporary=checkout / ".rewind", pytest=lambda *_: pytest.fail("it ran"))
    verdict = trial.run(warm, gone, [Test(f"{FILE}::test_a_positive_number", 0.1, False)])
    assert (verdict.outcome, verdict.noticed) == (ERROR, False)


@pytest.mark.parametrize(
    ("function", "old", "new", "problem"),
    [
        ("rule.check", "number", "0", "there is no function rule.check"),
        ("check", "number", "0", "must stand once in one check, but stands 2 times"),
        ("check", "def check(self, number):", "def check(self, n):", "stands 1 times in rewind.core.rule.Limit.check"),
        ("positive", "if number < 0:", "if:", "what comes of it is no Python"),
    ],
)
def test_what_is_wrong_with_a_fault(checkout, function, old, new, problem):
    with pytest.raises(UnfitError, match="odd") as refused:
        changed(checkout, Fault("odd", GUARD, function, old, new))
    assert problem in str(refused.value)


def test_a_function_is_found_by_its_text_where_its_name_is_another_s_too(checkout):
    place = locate(checkout, Fault("below", COMPARISON, "check", ">= 0", "> 0"))
    assert (place.function, place.path, place.package()) == (
        "rewind.core.rule.Floor.check",
        "include/rewind/core/rule.py",
        "rewind.core",
    )
    assert place.lines(Fault("below", COMPARISON, "check", ">= 0", "> 0")) == {14}


def test_tests_of_make_test_come_first_then_the_cheapest_then_the_narrowest():
    known = Map()
    for name, seconds, full, broad in (("full", 0.1, True, 0), ("slow", 9.0, False, 0), ("wide", 0.1, False, 5)):
        known.tests[name] = Test(name, seconds, full)
        known.lines.setdefault("a.py", {}).setdefault(1, set()).add(name)
        known.lines["b.py"] = {line: {name} for line in range(broad)} or known.lines.get("b.py", {})
    known.tests["narrow"] = Test("narrow", 0.1, False)
    known.lines["a.py"][1].add("narrow")
    known.tests["elsewhere"] = Test("elsewhere", 0.1, False)
    assert [test.id for test in known.through("a.py", [1, 2])] == ["narrow", "wide", "slow", "full"]


@pytest.mark.parametrize(
    ("code", "notes", "outcome"),
    [
        (0, [("started", "a")], SURVIVED),
        (1, [("started", "a"), ("started", "b"), ("failed", "b")], CAUGHT),
        (None, [("started", "a"), ("started", "b")], HUNG),
        (None, [], ERROR),
        (2, [("broken", "a")], ERROR),
    ],
)
def test_what_pytest_s_end_says_of_a_fault(tmp_path, code, notes, outcome):
    path = tmp_path / "notes"
    path.write_text("".join(f'{{"what": "{what}", "test": "{test}"}}\n' for what, test in notes))
    verdict = trial._judged(LOST, code, path, [Test("b", 0.1, True)], "why")
    assert (verdict.outcome, verdict.test) == (outcome, "b" if outcome in (CAUGHT, HUNG) else "")
    assert verdict.full == verdict.noticed


def test_the_table_can_be_read_back(checkout):
    verdicts = {
        LOST.name: Verdict(LOST.name, CAUGHT, f"{FILE}::test_a_negative_number[a|b]", False, 2.4, 3),
        EQUAL.name: Verdict(EQUAL.name, SURVIVED, seconds=1.0, tried=2),
        BELOW.name: Verdict(BELOW.name, HUNG, f"{FILE}::test_the_limit", True, 130.0, 1),
    }
    text = table.written(checkout, [LOST, EQUAL, BELOW], verdicts)
    assert "- 3 faults: 2 inverted comparison, 1 removed guard\n- noticed: 2, by `make test`: 1\n" in text
    assert "- removed guards noticed by `make test`: 1 of 1\n" in text
    assert [(row.fault, row.test, row.tier) for row in table.read(text)] == [
        ("limit-itself-refused", f"{FILE}::test_the_limit", "make test-all"),
        ("negative-taken", f"{FILE}::test_a_negative_number[a|b]", "make test"),
        ("nothing-changed", "survived", ""),
    ]


def test_all_faults_fit_the_code_and_lie_in_all_packages():
    assert unfit(PROJECT, FAULTS) == []
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []
    packages = {locate(PROJECT, fault).package() for fault in FAULTS}
    layers = {
        f"rewind.{folder.name}"
        for folder in (PROJECT / "include/rewind").iterdir()
        if (folder / "__init__.py").exists()
    }
    assert packages == {*layers, "dags", "plugins", "examples"}
