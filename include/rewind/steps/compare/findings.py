"""What a comparison found, and what is made of it: sums, a verdict, columns that look volatile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rewind.core import lifecycle
from rewind.core.comparing import NOTHING
from rewind.core.offsets import Vector
from rewind.core.pipeline import RowRule
from rewind.transforms.comparing import compare

MANY = 10
"""Pairs of rows in all of which a column has to differ to be called a likely volatile."""
MISCOUNTED = "miscounted"
"""Count of the rows that are too few or too many of what rules of rows expect."""
BAD = (*compare.DIFFERENCES, "repeated_differently", MISCOUNTED)
"""Counts that fail a verdict."""


@dataclass(frozen=True)
class Found:
    """What a comparison counted.

    Attributes:
        counts: Rows by class, with `rows` (compared in all), `repeated`, `repeated_differently`,
            `dead_letters` (of the candidate), `open` (beyond the ceiling) and, where rules of rows were counted,
            `miscounted`.
        fields: Rows by class and differing field.
        sample: The first differences by source coordinate, both sides, bytes that are no text in hex.
        beyond: Of live and of the candidate, by place (`outputs.place`), the first offset in the output of a row
            beyond the ceiling.
        unread: Where both outputs have to be read on for what lies beyond the horizon (`Frontier.unread`).
        ends: Up to where both were read (`Frontier.ends`).
        touched: Rows that were written since the comparison before, of what that one judged.
    """

    counts: Mapping[str, int]
    fields: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sample: tuple[Mapping[str, Any], ...] = ()
    beyond: tuple[Mapping[int, int], Mapping[int, int]] = ({}, {})
    unread: Mapping[str, Vector] = field(default_factory=dict)
    ends: Mapping[str, Vector] = field(default_factory=dict)
    touched: int = 0


def judge(found: Found, expected_records: int, late_share: float = 1.0) -> tuple[str, str]:
    """Return the verdict (pass, fail or error) and why it is not a pass.

    Nothing compared is an error, never a pass, and so are dead letters alone: nothing of either output was looked at.

    Args:
        found: What a comparison counted.
        expected_records: Source offsets of the horizon.
        late_share: Share of the results that may differ by lateness alone.
    """
    bad = {name: found.counts.get(name, 0) for name in BAD}
    wrong = {name: count for name, count in bad.items() if count}
    if wrong:
        return lifecycle.FAIL, "; ".join(f"{count} {name}" for name, count in wrong.items())
    late = found.counts.get(compare.LATE, 0)
    if late > late_share * found.counts["rows"]:
        return lifecycle.FAIL, f"{late} {compare.LATE} of {found.counts['rows']}: more than a share of {late_share}"
    nothing = _nothing(found.counts, expected_records)
    return (lifecycle.ERROR, nothing) if nothing else (lifecycle.PASS, "")


def _nothing(counts: Mapping[str, int], expected_records: int) -> str:
    """Return why no row was compared; empty when some were."""
    rows, letters, opened = counts["rows"], counts.get("dead_letters", 0), counts.get(compare.OPEN, 0)
    # Those that a rule expected were rows on one side, and looked at.
    compared = rows and not rows == letters == counts.get(compare.EQUAL)
    if compared:
        return ""
    if opened and expected_records:
        told = f"{opened} are open, and close when a record of later event time or offset comes"
        return f"nothing can be compared yet: {told}"
    if rows:
        return f"{NOTHING} but {letters} dead letters, which are the same on both sides"
    if expected_records:
        return f"{NOTHING}, though the plan expected {expected_records} records"
    beyond = f" ({opened} rows lie beyond)" if opened else ""
    return f"{NOTHING}: there is no record that both jobs have processed{beyond}"


def likely_volatile(found: Found) -> list[str]:
    """Return the columns that differ in all rows that both outputs have, if those are enough to be no accident."""
    both = sum(found.counts[name] for name in (compare.EQUAL, compare.EXPECTED, compare.CHANGED))
    changed = found.fields.get(compare.CHANGED, {})
    return sorted(name for name, count in changed.items() if count == both >= MANY)


def counted(found: Found, rules: Sequence[RowRule]) -> Found:
    """Return what was found with how many rows each rule of rows has too few or too many, in all."""
    if not rules:
        return found
    met = found.fields.get(compare.EXPECTED, {})
    wrong = sum(rule.miscounted(met.get(rule.label, 0)) for rule in rules)
    return replace(found, counts={**found.counts, MISCOUNTED: wrong})


def together(*several: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return the sums of counts by class and field."""
    sums: dict[str, dict[str, int]] = {}
    for fields in several:
        for name, counts in fields.items():
            kept = sums.setdefault(name, {})
            kept.update({column: kept.get(column, 0) + count for column, count in counts.items()})
    return sums
