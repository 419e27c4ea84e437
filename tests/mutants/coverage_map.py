"""Which tests run through which lines, measured once a test file and kept until that file or the code changes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coverage import CoverageData

from tests.mutants import copies, plugin

TIERS = ("tests/unit", "tests/dags", "tests/contract", "tests/spark", "tests/steps")
"""Cheap enough to be measured; what starts a stack or a spark-submit a test is not."""
SHARED = ("include/", "dags/", "plugins/", "jobs/", "tests/support/", "tests/scenarios/", "tests/conftest.py")
"""What all tests depend on."""
PLANTING = ("tests/unit/test_mutants.py::", "tests/unit/test_lifecycle_machine.py::test_the_machine_notices_")
"""Tests that plant faults themselves: beside another one theirs might not fit, and would look as if noticed."""
AT_ONCE = {"tests/unit": 10, "tests/dags": 4}
OTHERWISE = 3
"""Files that are measured by one pytest, and are lost together when it is ended."""
LIMIT = 1_500.0
"""Seconds that one pytest may measure."""

CONFIG = """\
[run]
parallel = true
data_file = {data}
context = ${{{context}-}}
sigterm = true
patch = _exit, fork
disable_warnings = no-data-collected
include =
    */include/rewind/*
    */rewind.zip/rewind/*
    {copied}/dags/*
    {copied}/plugins/*
    {copied}/examples/*
"""


@dataclass(frozen=True)
class Test:
    """A test that passed.

    Attributes:
        id: Its node id.
        seconds: What it took, fixtures of a wider scope aside.
        full: Only `make test-all` runs it.
        fixtures: The fixtures of a wider scope that it uses.
    """

    __test__ = False

    id: str
    seconds: float
    full: bool
    fixtures: tuple[str, ...] = ()


@dataclass
class Map:
    """What was measured.

    Attributes:
        tests: By node id.
        fixtures: Seconds that a fixture of a wider scope takes.
        lines: What runs through a line: node ids, and names of fixtures.
        failing: Tests that fail without any fault. They can notice none.
    """

    tests: dict[str, Test] = field(default_factory=dict)
    fixtures: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)

    def add(self, measured: Mapping[str, Any]) -> None:
        """Add what was measured of a file."""
        self.tests.update(
            {each["id"]: Test(**each | {"fixtures": tuple(each["fixtures"])}) for each in measured["tests"]}
        )
        self.fixtures.update(measured["fixtures"])
        self.failing.extend(measured["failing"])
        for path, lines in measured["lines"].items():
            known = self.lines.setdefault(path, {})
            for line, contexts in lines.items():
                known.setdefault(int(line), set()).update(contexts)

    def through(self, path: str, lines: Iterable[int]) -> list[Test]:
        """Return the tests that run through one of the lines: those of `make test` first, then the cheapest.

        Of those that cost about the same, the ones that run through the fewest lines come first: they are about these.
        """
        known = self.lines.get(path, {})
        contexts = set().union(*(known.get(line, set()) for line in lines))
        found = [test for test in self.tests.values() if test.id in contexts or contexts & set(test.fixtures)]
        return sorted(found, key=lambda test: (test.full, self._cost(test), self._breadth()[test.id], test.id))

    def _cost(self, test: Test) -> int:
        seconds = test.seconds + sum(self.fixtures.get(name, 0) for name in test.fixtures)
        return round(math.log2(max(seconds, 0.1)))

    def _breadth(self) -> dict[str, int]:
        if not hasattr(self, "_counted"):
            self._counted = dict.fromkeys(self.tests, 0)
            for contexts in (contexts for lines in self.lines.values() for contexts in lines.values()):
                for context in contexts & self._counted.keys():
                    self._counted[context] += 1
        return self._counted


@dataclass(frozen=True)
class Store:
    """Where measurements are kept, by test file.

    Attributes:
        root: The checkout.
        folder: The store's folder.
        code: Digest of what all tests depend on.
    """

    root: Path
    folder: Path
    code: str

    def test_files(self, tiers: Sequence[str]) -> list[str]:
        """Return the test files of some tiers, in their order."""
        names = copies.files(self.root)
        return [n for tier in tiers for n in names if n.startswith(f"{tier}/") and Path(n).name.startswith("test_")]

    def stale(self, test_files: Sequence[str]) -> list[str]:
        """Return the test files that have not been measured as they are, for the code as it is."""
        return [name for name in test_files if self._kept(name).get("digest") != self._digest(self.root, name)]

    def load(self, test_files: Sequence[str]) -> Map:
        """Return what is known of some test files."""
        made = Map()
        for name in test_files:
            if kept := self._kept(name):
                made.add(kept)
        return made

    def keep(self, copied: Path, names: Sequence[str], measured: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep what was measured of test files as they are in a copy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            kept = {**measured[name], "digest": self._digest(copied, name)}
            self._path(name).write_text(json.dumps(kept))

    def _kept(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        return json.loads(path.read_text()) if path.exists() else {}

    def _path(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '-')}.json"

    def _digest(self, root: Path, name: str) -> str:
        conftest = f"{Path(name).parent.as_posix()}/conftest.py"
        names = [name, *([conftest] if (root / conftest).exists() else [])]
        return f"{self.code}-{copies.digest(root, names)}"


def code_of(root: Path) -> str:
    """Return the digest of what all tests depend on."""
    return copies.digest(root, [name for name in copies.files(root) if name.startswith(SHARED)])


def batches(test_files: Sequence[str]) -> Iterator[list[str]]:
    """Return the files that are measured together; files of two tiers never are."""
    tiers = dict.fromkeys(Path(name).parent.as_posix() for name in test_files)
    for tier in tiers:
        mine = [name for name in test_files if Path(name).parent.as_posix() == tier]
        size = AT_ONCE.get(tier, OTHERWISE)
        yield from (mine[start : start + size] for start in range(0, len(mine), size))


def measure(copied: Path, test_files: Sequence[str], work: Path) -> dict[str, dict[str, Any]]:
    """Run test files in a copy and return by file what was measured.

    Raises:
        RuntimeError: They cannot be collected, or took too long.
    """
    work.mkdir(parents=True, exist_ok=True)
    for left in work.iterdir():
        left.unlink()
    config, notes, log = work / "coveragerc", work / "notes", work / "log"
    config.write_text(CONFIG.format(data=work / "data", copied=copied, context=plugin.CONTEXT))
    environment = {
        plugin.NOTES: str(notes),
        plugin.CONFIG: str(config),
        "COVERAGE_PROCESS_START": str(config),
    }
    code = copies.pytest_in(copied, test_files, environment, log, LIMIT)
    if code not in (0, 1):
        raise RuntimeError(f"{' '.join(test_files)} could not be measured (pytest: {code}). Look into {log}")
    lines = _lines(copied, sorted(work.glob("data.*")))
    return _by_file(test_files, read_notes(notes), lines)


def read_notes(path: Path) -> list[dict[str, Any]]:
    """Return what the plugin noted, in order."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _lines(copied: Path, paths: Sequence[Path]) -> dict[str, dict[int, set[str]]]:
    found: dict[str, dict[int, set[str]]] = {}
    for path in paths:
        data = CoverageData(str(path))
        data.read()
        for name in data.measured_files():
            known = found.setdefault(_in_checkout(copied, name), {})
            for line, contexts in data.contexts_by_lineno(name).items():
                known.setdefault(line, set()).update(filter(None, contexts))
    return found


def _in_checkout(copied: Path, name: str) -> str:
    _, frozen, inner = name.partition("/rewind.zip/")
    return f"include/{inner}" if frozen else name.removeprefix(f"{copied}/")


def _by_file(
    test_files: Sequence[str], notes: Sequence[Mapping[str, Any]], lines: Mapping[str, Mapping[int, set[str]]]
) -> dict[str, dict[str, Any]]:
    seconds = {note["fixture"]: note["seconds"] for note in notes if note["what"] == "fixture"}
    failed = {note["test"] for note in notes if note["what"] == "failed"}
    ended = [note for note in notes if note["what"] == "ended" and not note["test"].startswith(PLANTING)]
    made = {}
    for name in test_files:
        mine = [note for note in ended if note["test"].split("::")[0] == name]
        used = {fixture for note in mine for fixture in note["fixtures"]}
        contexts = {note["test"] for note in mine} - failed | used
        made[name] = {
            "tests": [_test(note) for note in mine if note["test"] not in failed],
            "failing": sorted({note["test"] for note in mine} & failed),
            "fixtures": {fixture: seconds.get(fixture, 0) for fixture in sorted(used)},
            "lines": {path: _only(of, contexts) for path, of in lines.items()},
        }
    return made


def _test(note: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": note["test"], **{name: note[name] for name in ("seconds", "full", "fixtures")}}


def _only(lines: Mapping[int, set[str]], contexts: set[str]) -> dict[int, list[str]]:
    return {line: sorted(found & contexts) for line, found in sorted(lines.items()) if found & contexts}
