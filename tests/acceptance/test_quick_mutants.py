"""What the issue `quick` asks to be shown of faults; `make accept WHAT=quick_mutants`."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants import copies, plugin, table, trial
from tests.mutants.catalogue import FAULTS
from tests.mutants.coverage_map import Test
from tests.mutants.fault import GUARD, locate
from tests.mutants.run import unfit
from tests.mutants.warm import Warm

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
DRAWN = 12


def test_shows_3_the_table_holds_all_faults_and_every_one_is_noticed(figure: Figure, project: Path) -> None:
    assert unfit(project, FAULTS) == []
    kinds = {fault.name: fault.kind for fault in FAULTS}
    rows = table.read((project / "tests/mutants.md").read_text())
    assert sorted(row.fault for row in rows) == sorted(kinds)
    assert {row.tier for row in rows} <= {table.SOON, table.LATE}
    soon = [row.fault for row in rows if row.tier == table.SOON]
    guards = {name for name, kind in kinds.items() if kind == GUARD}
    assert len(rows) >= 80
    assert len(soon) >= 0.9 * len(rows)
    assert guards <= set(soon)
    figure("faults_noticed", f"{len(rows)} of {len(FAULTS)}, {len(soon)} by {table.SOON}")
    figure("removed_guards_noticed_by_make_test", f"{len(guards & set(soon))} of {len(guards)}")
    figure("faults_by_package", dict(sorted(Counter(locate(project, fault).package() for fault in FAULTS).items())))


def test_shows_3_drawn_faults_are_noticed_again(figure: Figure, project: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}")
    faults = {fault.name: fault for fault in FAULTS}
    rows = [row for row in table.read((project / "tests/mutants.md").read_text()) if row.tier]
    drawn = random.Random(seed).sample(rows, DRAWN)
    copied, notes = copies.copy(project, tmp_path / "copy"), {plugin.NOTES: str(tmp_path / "notes")}
    # A test that fails anyway notices nothing.
    tests = sorted({row.test for row in drawn})
    assert copies.pytest_in(copied, tests, notes, tmp_path / "log", 1_200) == 0, (tmp_path / "log").read_text()
    warm = Warm(copied, tmp_path / "tmp")
    for row in drawn:
        verdict = trial.run(warm, faults[row.fault], [Test(row.test, 60.0, row.tier == table.LATE)])
        assert (verdict.noticed, verdict.test) == (True, row.test), verdict
    warm.close()
    figure(
        "drawn_faults_noticed_again", f"{len(drawn)} of {DRAWN}, SEED={seed}: {', '.join(row.fault for row in drawn)}"
    )
