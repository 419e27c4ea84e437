"""What an issue asks to be shown: `--shows WORD` selects it, prints its figures, and shows a line once for a commit.

A line is a test of `tests/acceptance/test_<word>*.py`, or one of any tier with a mark; its figures hold when it passes:

    @pytest.mark.shows("stateful", seed_003="batches 0 to 6 as printed")

Names and values of a mark are formatted with the parameters of the test: `"{name}"`.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

TESTS = "tests"
FOLDER = Path(TESTS, "acceptance")

Figures = Mapping[str, object]
FIGURES = pytest.StashKey[dict[str, object]]()
MARKED = pytest.StashKey[Figures]()
PASSED = pytest.StashKey[set[str]]()
PHASES = {"setup", "call", "teardown"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shows", metavar="WORD", help="run what the issue of this word asks to be shown; print figures")


def pytest_configure(config: pytest.Config) -> None:
    word = config.getoption("--shows")
    if word is None:
        return
    known = words(config.rootpath)
    if word not in known:
        raise pytest.UsageError(f"--shows: {word!r} is not the word of an issue. Choose one of {', '.join(known)}")
    config.pluginmanager.register(_Lines(config.rootpath, word), "lines")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave acceptance out unless it is asked for: its tests take hours."""
    folder = config.rootpath / FOLDER
    if collection_path != folder or config.getoption("--shows") is not None:
        return None
    named = (Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args)
    return None if any(path.resolve().is_relative_to(folder) for path in named) else True


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Print `FIGURE name value`."""
    figures = request.node.stash.setdefault(FIGURES, {})

    def show(name: str, value: object) -> None:
        figures[name] = value
        _print({name: value})

    return show


def words(root: Path) -> list[str]:
    """Return the words of the issues: what the names of the acceptance files begin with."""
    return sorted({path.stem.split("_")[1] for path in (root / FOLDER).glob("test_*.py")})


def commit(root: Path) -> str:
    """Return the commit that is checked out; "" where something is uncommitted, which has no name to resume under."""
    command = ["git", "status", "--porcelain=v2", "--branch"]
    lines = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()
    heads = [line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")]
    changed = any(not line.startswith("#") for line in lines)
    return heads[0][:12] if heads and not changed else ""


class _Lines:
    """The lines of one word, and which of them the commit has shown."""

    def __init__(self, root: Path, word: str) -> None:
        self._root = root
        self._word = word
        self._commit = commit(root)
        tests = (root / TESTS).rglob("test_*.py")
        self._files = [path for path in tests if self._is_own(path) or self._has_mark(path)]

    def _is_own(self, path: Path) -> bool:
        return path.parent == self._root / FOLDER and f"{path.stem}_".startswith(f"test_{self._word}_")

    def _has_mark(self, path: Path) -> bool:
        return bool(re.search(rf'\bshows\(\s*"{self._word}"', path.read_text()))

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Import nothing that holds no line: neither Airflow nor Spark, unless a line needs them."""
        return None if any(path.is_relative_to(collection_path) for path in self._files) else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        lines = [item for item in items if self._is_own(item.path) or any(self._marks(item))]
        config.hook.pytest_deselected(items=[item for item in items if item not in lines])
        items[:] = lines
        for line in lines:
            line.stash[MARKED] = _formatted(line, self._marks(line))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Skip what was shown before any of its fixtures is made."""
        if self._commit and self._record(item).exists():
            figures = json.loads(self._record(item).read_text())
            _print(figures)
            shown = "; ".join(f"{name} {value}" for name, value in figures.items())
            item.add_marker(pytest.mark.skip(reason=f"shown for {self._commit}: {shown or 'no figures'}"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None] | pytest.TestReport:
        report = yield
        passed = item.stash.setdefault(PASSED, set())
        if report.passed:
            passed.add(report.when)
        if passed == PHASES:
            _print(item.stash[MARKED])
            self._keep(item, {**item.stash.get(FIGURES, {}), **item.stash[MARKED]})
        return report

    def _marks(self, item: pytest.Item) -> Iterator[pytest.Mark]:
        return (mark for mark in item.iter_markers("shows") if mark.args == (self._word,))

    def _record(self, item: pytest.Item) -> Path:
        """Return the file that says what a test has shown; the hash keeps tests apart whose names read alike."""
        name = re.sub(r"\W", "-", item.name)[:80]
        digest = hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]
        return self._root / ".rewind" / "accept" / self._commit / self._word / f"{name}-{digest}.json"

    def _keep(self, item: pytest.Item, figures: Figures) -> None:
        # What was committed or edited meanwhile is not what the test began with.
        if not self._commit or commit(self._root) != self._commit:
            return
        record = self._record(item)
        record.parent.mkdir(parents=True, exist_ok=True)
        begun = record.with_suffix(".begun")
        begun.write_text(json.dumps(figures, default=str))
        begun.replace(record)


def _formatted(item: pytest.Item, marks: Iterable[pytest.Mark]) -> Figures:
    """Return the figures of marks, formatted with the parameters of their test."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}

    def formatted(given: object) -> object:
        return given.format(**parameters) if isinstance(given, str) else given

    try:
        return {str(formatted(name)): formatted(value) for mark in marks for name, value in mark.kwargs.items()}
    except (KeyError, IndexError) as error:
        raise pytest.UsageError(
            f"{item.nodeid}: its mark shows() names {error}; name a parameter of the test"
        ) from None


def _print(figures: Figures) -> None:
    for name, value in figures.items():
        print(f"\nFIGURE {name} {value}")
