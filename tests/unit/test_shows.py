"""Lines of issues: which tests `--shows` selects, the figures they print, and what a commit has shown already."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support import shows

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).resolve().parents[2]
PLAIN = "def test_a(): pass\n"
MARKED = 'import pytest\n\n@pytest.mark.shows("{}")\ndef test_{}(): pass\n'


class Project:
    """A project of its own, a git repository, whose tests run with the plugin alone."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.write("pytest.ini", "[pytest]\nmarkers = shows\ntestpaths = tests\n")
        self.write(".gitignore", ".rewind\n__pycache__\n")
        self.write("tests/acceptance/test_quick.py", PLAIN)
        self.git("init", "-q")

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *arguments: str) -> str:
        author = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
        done = subprocess.run(["git", *author, *arguments], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self) -> str:
        """Commit all there is; return the commit as records name it."""
        self.git("add", "-A")
        self.git("commit", "-qm", "a step")
        return self.git("rev-parse", "HEAD")[:12]

    def run(self, *arguments: str) -> pytest.RunResult:
        chosen = ("-p", "tests.support.shows", "-p", "no:cacheprovider", "--import-mode=importlib", "-rs")
        return self.pytester.runpytest_inprocess(*chosen, *arguments)

    def show(self, word: str = "quick") -> pytest.RunResult:
        return self.run("--shows", word)

    def collected(self, *arguments: str) -> set[str]:
        result = self.run("--collect-only", "-q", *arguments)
        assert result.ret == pytest.ExitCode.OK
        return {line.removeprefix("tests/") for line in result.outlines if "::" in line}

    def records(self) -> list[Path]:
        return sorted((self.path / ".rewind").rglob("*.json"))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    # The plugins that are installed here would be imported by each run again.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Project(pytester)


def figures(result: pytest.RunResult) -> list[str]:
    return [line.removeprefix("FIGURE ") for line in result.outlines if line.startswith("FIGURE ")]


def test_a_word_selects_its_files_of_acceptance_and_what_is_marked_with_it(project):
    for name in ("quick_stack", "quickest", "slow"):
        project.write(f"tests/acceptance/test_{name}.py", PLAIN)
    both = MARKED.format("quick", "b") + MARKED.format("slow", "c") + PLAIN
    project.write("tests/unit/test_marked.py", both)
    project.write("tests/heavy/conftest.py", "raise SystemError('needs a machine')")
    project.write("tests/heavy/test_unmarked.py", PLAIN)
    project.write("tests/unit/test_unmarked.py", "raise SystemError('needs a machine')")
    assert project.collected("--shows", "quick") == {
        "acceptance/test_quick.py::test_a",
        "acceptance/test_quick_stack.py::test_a",
        "unit/test_marked.py::test_b",
    }
    assert project.collected("--shows", "slow") == {"acceptance/test_slow.py::test_a", "unit/test_marked.py::test_c"}


def test_without_the_option_a_mark_does_nothing_and_acceptance_is_left_out_unless_it_is_named(project):
    project.write("tests/unit/test_marked.py", MARKED.format("quick", "b") + PLAIN)
    unit = {"unit/test_marked.py::test_b", "unit/test_marked.py::test_a"}
    assert project.collected() == project.collected("tests") == unit
    assert project.collected("tests/acceptance", "tests/unit") == {*unit, "acceptance/test_quick.py::test_a"}
    assert project.collected("tests/acceptance/test_quick.py::test_a") == {"acceptance/test_quick.py::test_a"}
    project.commit()
    for _ in range(2):
        result = project.run("tests/unit")
        result.assert_outcomes(passed=2)
        assert (figures(result), project.records()) == ([], [])


@pytest.mark.parametrize("word", ["quik", ""])
def test_an_unknown_word_is_refused_with_those_that_are_known(project, word):
    project.write("tests/acceptance/test_slow_one.py", PLAIN)
    result = project.show(word)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    expected = f"ERROR: --shows: {word!r} is not the word of an issue. Choose one of quick, slow"
    assert expected in result.errlines


FIGURES = """
import pytest

@pytest.mark.shows("quick", **{"kept_of_{name}": "{kept} keys", "differing": 0})
@pytest.mark.shows("slow", of_another_issue=1)
@pytest.mark.shows("quick", whole="yes")
@pytest.mark.parametrize(("name", "kept"), [("windows", 3), ("sessions", 5)])
def test_marked(figure, name, kept):
    figure("measured", {name: kept})
"""
PRINTED = [
    *("measured {'windows': 3}", "whole yes", "kept_of_windows 3 keys", "differing 0"),
    *("measured {'sessions': 5}", "whole yes", "kept_of_sessions 5 keys", "differing 0"),
]


def test_figures_of_the_fixture_and_of_the_words_marks_are_printed(project):
    project.write("tests/unit/test_marked.py", FIGURES)
    result = project.run("--shows", "quick", "-s")
    result.assert_outcomes(passed=3)
    assert figures(result) == PRINTED


def test_a_mark_that_names_no_parameter_is_refused_before_anything_runs(project):
    project.write("tests/unit/test_marked.py", FIGURES.replace("{kept} keys", "{keys} keys"))
    result = project.show()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: tests/unit/test_marked.py::test_marked?windows-3?: its mark shows() names 'keys'; name a parameter *"]
    )


ONCE = """
import pathlib
import pytest

@pytest.fixture
def costly():
    with pathlib.Path(".rewind").with_name("made").open("a") as made:
        made.write("x")

@pytest.mark.shows("quick", kept=3)
def test_marked(costly, figure):
    figure("took", 1.5)
"""


def test_what_this_commit_has_shown_is_skipped_with_its_figures_and_without_its_fixtures(project):
    project.write(".gitignore", ".rewind\n__pycache__\nmade\n")
    project.write("tests/unit/test_marked.py", ONCE)
    first = project.commit()
    project.show().assert_outcomes(passed=2)
    again = project.show()
    again.assert_outcomes(skipped=2)
    assert figures(again) == ["took 1.5", "kept 3"]
    again.stdout.fnmatch_lines(
        [
            f"SKIPPED ?1? tests/acceptance/test_quick.py: shown for {first}: no figures",
            f"SKIPPED ?1? tests/unit/test_marked.py:*: shown for {first}: took 1.5; kept 3",
        ],
        consecutive=True,
    )
    assert (project.path / "made").read_text() == "x"

    project.write("README", "another commit")
    assert project.commit() != first
    project.show().assert_outcomes(passed=2)
    assert (project.path / "made").read_text() == "xx"


def test_what_is_uncommitted_has_no_name_to_resume_under(project):
    project.commit()
    project.write("tests/unit/test_marked.py", MARKED.format("quick", "b"))
    for _ in range(2):
        project.show().assert_outcomes(passed=2)
    assert project.records() == []
    project.commit()
    project.show().assert_outcomes(passed=2)
    project.write("tests/unit/test_marked.py", MARKED.format("quick", "b") + PLAIN)
    project.show().assert_outcomes(passed=2)


FAULTS = {
    "setup": "@pytest.fixture\ndef at():\n    assert False\n",
    "call": "@pytest.fixture\ndef at():\n    return False\n",
    "teardown": "@pytest.fixture\ndef at():\n    yield True\n    assert False\n",
    "skip": "@pytest.fixture\ndef at():\n    pytest.skip('no browser')\n",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_printed_or_recorded_of_what_did_not_pass(project, fault):
    marked = '@pytest.mark.shows("quick", kept=3)\ndef test_marked(at):\n    assert at\n'
    project.write("tests/unit/test_marked.py", f"import pytest\n\n{FAULTS[fault]}\n{marked}")
    project.commit()
    for _ in range(2):
        result = project.show()
        assert "shown for" not in "".join(line for line in result.outlines if "test_marked" in line)
        assert figures(result) == []
    assert [record.name.partition("-")[0] for record in project.records()] == ["test_a"]


def test_nothing_is_recorded_when_the_tree_is_no_longer_what_the_run_began_with(project):
    changing = 'import pathlib\n\ndef test_a():\n    pathlib.Path("pytest.ini").open("a").write("# edited\\n")\n'
    project.write("tests/acceptance/test_quick.py", changing)
    project.commit()
    project.show().assert_outcomes(passed=1)
    assert project.records() == []


ALIKE = (
    'import pytest\n\n@pytest.mark.shows("quick")\n@pytest.mark.parametrize("of", ["a b", "a-b"])\ndef test_a(of): {}\n'
)


def test_tests_whose_names_read_alike_have_a_record_each(project):
    project.write("tests/unit/test_marked.py", ALIKE.format("pass"))
    project.write("tests/spark/test_marked.py", ALIKE.format("assert of == 'a b'"))
    project.commit()
    project.show().assert_outcomes(passed=4, failed=1)
    assert len(project.records()) == 4
    project.show().assert_outcomes(skipped=4, failed=1)


def test_what_is_marked_for_two_issues_is_shown_for_each(project):
    project.write("tests/acceptance/test_slow.py", PLAIN)
    project.write("tests/unit/test_marked.py", FIGURES)
    project.commit()
    project.show("quick").assert_outcomes(passed=3)
    result = project.show("slow")
    result.assert_outcomes(passed=3)
    assert [line for line in figures(result) if not line.startswith("measured")] == ["of_another_issue 1"] * 2


def test_every_mark_of_this_project_names_an_issue():
    found = [
        (path.name, word)
        for path in (PROJECT / "tests").rglob("test_*.py")
        for word in re.findall(r'^@pytest\.mark\.shows\(\s*"(\w+)"', path.read_text(), re.MULTILINE)
        if path != Path(__file__)
    ]
    assert len(found) > 40
    assert {word for _, word in found} <= set(shows.words(PROJECT))
