"""One fault is planted, and the tests that run through its lines are run to the first that notices it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants import copies, plugin
from tests.mutants.coverage_map import Map, Test, read_notes
from tests.mutants.fault import Fault, UnfitError, locate
from tests.mutants.warm import Warm

CAUGHT, HUNG, SURVIVED, UNREACHED, ERROR = "caught", "hung", "survived", "not reached", "error"
MOST_TESTS, MOST_SECONDS = 200, 120.0
"""What is tried of a fault that many tests run through."""
LEAST_TIME, SLOWER = 120.0, 6
"""Seconds after which tests hang that are over at once otherwise; how many times as long as otherwise they may take."""


@dataclass(frozen=True)
class Verdict:
    """What became of a fault.

    Attributes:
        fault: Its name.
        outcome: caught, hung (which is noticed too), survived, not reached (no test that was measured runs through
            it), or error, which says nothing about the tests.
        test: The node id of the test that noticed it.
        full: Only `make test-all` runs that test.
        seconds: What planting and noticing it took.
        tried: Tests that it was given to.
        why: What is wrong with an error.
    """

    fault: str
    outcome: str
    test: str = ""
    full: bool = False
    seconds: float = 0.0
    tried: int = 0
    why: str = ""

    @property
    def noticed(self) -> bool:
        """A test failed with it."""
        return self.outcome in (CAUGHT, HUNG)


def chosen(root: Path, fault: Fault, known: Map) -> list[Test]:
    """Return the tests that a fault is given to, in order.

    Raises:
        UnfitError: It does not fit the code.
    """
    place = locate(root, fault)
    found, spent = [], 0.0
    for test in known.through(place.path, place.lines(fault))[:MOST_TESTS]:
        spent += test.seconds
        if found and spent > MOST_SECONDS:
            break
        found.append(test)
    return found


def run(warm: Warm, fault: Fault, tests: Sequence[Test]) -> Verdict:
    """Plant a fault in a copy and run tests up to the first that fails."""
    if not tests:
        return Verdict(fault.name, UNREACHED)
    work = warm.temporary / "logs"
    work.mkdir(parents=True, exist_ok=True)
    notes, log, arguments = work / f"{fault.name}.notes", work / f"{fault.name}.log", work / f"{fault.name}.tests"
    notes.unlink(missing_ok=True)
    arguments.write_text("".join(f"{test.id}\n" for test in tests))
    limit = LEAST_TIME + SLOWER * sum(test.seconds for test in tests)
    try:
        with copies.planted(warm.copied, fault):
            environment = {plugin.NOTES: str(notes), plugin.ORDER: str(arguments)}
            code = warm.pytest(["-x", f"@{arguments}"], environment, log, limit)
    except UnfitError as error:
        return Verdict(fault.name, ERROR, why=str(error))
    return _judged(fault, code, notes, tests, f"pytest: {code}, see {log}")


def _judged(fault: Fault, code: int | None, notes: Path, tests: Sequence[Test], why: str) -> Verdict:
    noted = read_notes(notes)
    started = [note["test"] for note in noted if note["what"] == "started"]
    failed = [note["test"] for note in noted if note["what"] == "failed"]
    full = {test.id for test in tests if test.full}
    if code == 0:
        return Verdict(fault.name, SURVIVED, tried=len(started))
    if code is None and started:
        return Verdict(fault.name, HUNG, started[-1], started[-1] in full, tried=len(started))
    if code == 1 and failed:
        return Verdict(fault.name, CAUGHT, failed[0], failed[0] in full, tried=len(started))
    return Verdict(fault.name, ERROR, why=why)


@dataclass(frozen=True)
class Results:
    """Verdicts that are kept, so that a run goes on where the last one stopped.

    Attributes:
        root: The checkout.
        folder: Where they are kept.
        code: Digest of what all tests depend on.
    """

    root: Path
    folder: Path
    code: str

    def kept(self, fault: Fault, test_files: Sequence[str]) -> Verdict | None:
        """Return the verdict on a fault if it still holds: one that was caught does while that test stays as it is."""
        path = self._path(fault)
        if not path.exists():
            return None
        kept = json.loads(path.read_text())
        verdict = Verdict(**kept["verdict"])
        return verdict if kept["rests_on"] == self._rests_on(self.root, fault, verdict, test_files) else None

    def keep(self, copied: Path, fault: Fault, verdict: Verdict, test_files: Sequence[str]) -> None:
        """Keep a verdict that was found in a copy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = {"verdict": asdict(verdict), "rests_on": self._rests_on(copied, fault, verdict, test_files)}
        self._path(fault).write_text(json.dumps(kept))

    def _path(self, fault: Fault) -> Path:
        return self.folder / f"{fault.name}.json"

    def _rests_on(self, root: Path, fault: Fault, verdict: Verdict, test_files: Sequence[str]) -> str:
        names = [verdict.test.split("::")[0]] if verdict.test else test_files
        present = [name for name in names if (root / name).exists()]
        return f"{self.code} {copies.digest(root, present)} {fault!r}"
