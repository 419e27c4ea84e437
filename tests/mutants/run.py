"""A run: test files are measured, then faults are planted, by workers that have a copy of the checkout each."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.mutants import contained, copies, coverage_map, plugin, trial
from tests.mutants.coverage_map import Store
from tests.mutants.fault import Fault, UnfitError, changed
from tests.mutants.trial import Results, Verdict
from tests.mutants.warm import Warm


class Run:
    """A run over faults.

    Attributes:
        root: The checkout.
        folder: Where copies, measurements and verdicts are kept.
        test_files: Files of the tests that are used.
    """

    def __init__(self, root: Path, tiers: Sequence[str], workers: int) -> None:
        self.root = root
        self.folder = root / ".rewind" / "mutants"
        # As it is now: what is changed while this runs is for the next run.
        code = coverage_map.code_of(root)
        self.store = Store(root, self.folder / "map", code)
        self.results = Results(root, self.folder / "results", code)
        self.test_files = self.store.test_files(tiers)
        self.workers = workers
        self.began = time.monotonic()
        self.idle: queue.Queue[Path] = queue.Queue()
        self.warm: dict[Path, Warm] = {}

    def measure(self) -> None:
        """Measure the test files that have changed, or all of them when the code has."""
        stale = list(coverage_map.batches(self.store.stale(self.test_files)))
        self._work("measured", stale, self._measure)

    def _measure(self, copied: Path, names: Sequence[str]) -> str:
        measured = coverage_map.measure(copied, names, self.folder / "work" / copied.name)
        self.store.keep(copied, names, measured)
        failing = [test for name in names for test in measured[name]["failing"]]
        left_out = f", left out as they fail without any fault: {' '.join(failing)}" if failing else ""
        return f"{' '.join(names)}{left_out}"

    def judge(self, faults: Sequence[Fault]) -> dict[str, Verdict]:
        """Plant each fault that has no verdict yet; return all verdicts."""
        known = self.store.load(self.test_files)
        open_ones = [fault for fault in faults if self.results.kept(fault, self.test_files) is None]
        if open_ones:
            contained.check()
        self._work("", open_ones, lambda copied, fault: self._judge(copied, fault, known))
        for warm in self.warm.values():
            warm.close()
        self.warm.clear()
        kept = {fault.name: self.results.kept(fault, self.test_files) for fault in faults}
        return {name: verdict for name, verdict in kept.items() if verdict is not None}

    def confirmed(self, verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
        """Run each test that noticed a fault once without any: one that fails then too has noticed nothing."""
        work, tests = self.folder / "logs", sorted({verdict.test for verdict in verdicts.values() if verdict.noticed})
        if not tests:
            return dict(verdicts)
        copied = copies.copy(self.root, self.folder / "copies" / "0")
        work.mkdir(parents=True, exist_ok=True)
        (work / "confirmed.notes").unlink(missing_ok=True)
        (work / "confirmed.tests").write_text("".join(f"{test}\n" for test in tests))
        environment, log = {plugin.NOTES: str(work / "confirmed.notes")}, work / "confirmed.log"
        code = copies.pytest_in(copied, [f"@{work / 'confirmed.tests'}"], environment, log, coverage_map.LIMIT)
        failed = {
            note["test"] for note in coverage_map.read_notes(work / "confirmed.notes") if note["what"] == "failed"
        }
        if code not in (0, 1):
            failed = set(tests)
        why = f"fails without it too: {log}"
        return {
            name: replace(verdict, outcome=trial.ERROR, why=f"{verdict.test} {why}")
            if verdict.test in failed
            else verdict
            for name, verdict in verdicts.items()
        }

    def _judge(self, copied: Path, fault: Fault, known: coverage_map.Map) -> str:
        began = time.monotonic()
        tests = trial.chosen(self.root, fault, known)
        if copied not in self.warm:
            self.warm[copied] = Warm(copied, self.folder / "tmp" / copied.name)
        verdict = trial.run(self.warm[copied], fault, tests)
        verdict = replace(verdict, seconds=round(time.monotonic() - began, 1))
        self.results.keep(copied, fault, verdict, self.test_files)
        return f"{verdict.outcome:8} {fault.name} {verdict.seconds:.0f}s {verdict.test or verdict.why}"

    def _work(self, did: str, things: Sequence[Any], work: Callable[[Path, Any], str]) -> None:
        """Give things to workers with a copy each, and print what becomes of them."""
        if not things:
            return
        if self.idle.empty():
            for number in range(self.workers):
                self.idle.put(copies.copy(self.root, self.folder / "copies" / str(number)))
        with ThreadPoolExecutor(self.workers) as pool:
            running = [pool.submit(self._in_a_copy, work, thing) for thing in things]
            for done, ended in enumerate(as_completed(running), 1):
                seconds = time.monotonic() - self.began
                print(f"{seconds:5.0f}s {done}/{len(things)} {did} {ended.result()}", flush=True)

    def _in_a_copy(self, work: Callable[[Path, Any], str], thing: Any) -> str:
        copied = self.idle.get()
        try:
            return work(copied, thing)
        finally:
            self.idle.put(copied)


def unfit(root: Path, faults: Sequence[Fault]) -> list[str]:
    """Return why faults do not fit the code."""
    found = []
    for fault in faults:
        try:
            changed(root, fault)
        except UnfitError as error:
            found.append(str(error))
    return found
