"""`make mutants`: plant faults one at a time and see which test notices each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants import coverage_map, table
from tests.mutants.catalogue import FAULTS
from tests.mutants.contained import NotContainedError
from tests.mutants.run import Run, unfit

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path("tests/mutants.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every fault is noticed, 1 when one is not, 2 when one does not fit or cannot be contained."""
    asked = _parsed(arguments)
    faults = [fault for fault in FAULTS if not asked.only or any(part in fault.name for part in asked.only)]
    if wrong := unfit(ROOT, faults):
        print("\n".join(wrong))
        return 2
    run = Run(ROOT, asked.tiers, asked.workers)
    run.measure()
    if asked.map:
        return 0
    try:
        verdicts = run.confirmed(run.judge(faults))
    except NotContainedError as error:
        print(error)
        return 2
    print("\n".join(table.summary(faults, verdicts)))
    if faults == list(FAULTS):
        (ROOT / TABLE).write_text(table.written(ROOT, faults, verdicts))
    missed = [verdict for verdict in verdicts.values() if not verdict.noticed]
    print("".join(f"{verdict.outcome}: {verdict.fault} {verdict.why}\n" for verdict in missed), end="")
    return 1 if missed else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="PART", help="faults whose name holds this; may be repeated")
    parser.add_argument("--map", action="store_true", help="only measure which tests run through which lines")
    parser.add_argument("--workers", type=int, default=2, help="copies that are worked in at once")
    parser.add_argument("--tiers", nargs="+", default=coverage_map.TIERS, help="folders of tests")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
