"""The committed table of faults and the tests that notice them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.fault import GUARD, Fault, locate
from tests.mutants.trial import Verdict

HEAD = """\
# Faults that the tests notice

`make mutants` plants each of these faults alone, runs the tests that pass through
the changed lines, and writes this table.

"""
COLUMNS = ("fault", "kind", "package", "function", "noticed by", "in", "seconds")
SOON, LATE = "make test", "make test-all"


@dataclass(frozen=True)
class Row:
    """What the table says of a fault.

    Attributes:
        fault: Its name.
        test: The node id of the test that notices it; empty for none.
        tier: The command that runs this test.
    """

    fault: str
    test: str
    tier: str


def written(root: Path, faults: Sequence[Fault], verdicts: Mapping[str, Verdict]) -> str:
    """Return the table's text."""
    rows = sorted((_cells(root, fault, verdicts[fault.name]) for fault in faults), key=lambda row: (row[2], row[0]))
    lines = [_line(row) for row in (COLUMNS, ["---"] * len(COLUMNS), *rows)]
    return HEAD + "\n".join(summary(faults, verdicts)) + "\n\n" + "\n".join(lines) + "\n"


def _cells(root: Path, fault: Fault, verdict: Verdict) -> list[str]:
    by = f"`{verdict.test}`" if verdict.noticed else verdict.outcome
    tier = (LATE if verdict.full else SOON) if verdict.noticed else ""
    package = locate(root, fault).package()
    return [fault.name, fault.kind, package, f"`{fault.function}`", by, tier, f"{verdict.seconds:.0f}"]


def _line(cells: Sequence[str]) -> str:
    # A bar within a test's parameters would end the cell.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def summary(faults: Sequence[Fault], verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return the counts as lines of a list."""
    of = [(fault, verdicts[fault.name]) for fault in faults]
    soon = [fault for fault, verdict in of if verdict.noticed and not verdict.full]
    guards = [fault for fault, _ in of if fault.kind == GUARD]
    kinds = Counter(fault.kind for fault in faults)
    left = Counter(verdict.outcome for _, verdict in of if not verdict.noticed)
    return [
        f"- {len(of)} faults: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())),
        f"- noticed: {sum(verdict.noticed for _, verdict in of)}, by `{SOON}`: {len(soon)}",
        f"- removed guards noticed by `{SOON}`: {sum(fault in soon for fault in guards)} of {len(guards)}",
        *(f"- {outcome}: {number}" for outcome, number in sorted(left.items())),
    ]


def read(text: str) -> list[Row]:
    """Return the rows of a table's text."""
    rows = [line.strip("| ").replace("\\|", "\0").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.replace("\0", "|") for cell in row] for row in rows[2:]]
    return [Row(row[0], row[4].strip("`"), row[5]) for row in cells]
