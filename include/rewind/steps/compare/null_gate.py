"""The gate on nulls: a column of the candidate may not be null much more often than live's.

A change that was declared as expected hides what else becomes of a column, as when its new type cannot hold the old
values. So the share of nulls is gated by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from rewind.core import lifecycle
from rewind.core.model import Generation
from rewind.transforms.comparing import nulls
from rewind.transforms.values import parsing

NO_VALUES = "a side has no value: its rows are dead letters, tombstones, or not there"
"""Why no share of nulls was compared."""


@dataclass(frozen=True)
class Share:
    """Which share of the compared rows has no value in a column, on either side."""

    live: float
    candidate: float


@dataclass(frozen=True)
class Nulls:
    """How many values were compared on either side, and in how many of them each column is null.

    Attributes:
        values: Of live and of the candidate.
        live: By column of live.
        candidate: By column of the candidate.
    """

    values: tuple[int, int]
    live: Mapping[str, int]
    candidate: Mapping[str, int]

    def shares(self) -> dict[str, Share]:
        """Return the share of nulls of each column that both outputs have; nothing where a side has no value."""
        if 0 in self.values:
            return {}
        both = [name for name in self.live if name in self.candidate]
        ones = {name: (self.live[name], self.candidate[name]) for name in both}
        return {name: Share(a / self.values[0], b / self.values[1]) for name, (a, b) in ones.items()}

    def plus(self, other: Nulls) -> Nulls:
        """Return the sum with what was counted of other values of the same outputs."""
        values = (self.values[0] + other.values[0], self.values[1] + other.values[1])
        sides = [
            {name: count + more[name] for name, count in side.items()}
            for side, more in ((self.live, other.live), (self.candidate, other.candidate))
        ]
        return Nulls(values, *sides)


def counted(values: Sequence[DataFrame], live: Generation, candidate: Generation) -> Nulls:
    """Count the nulls of what was compared.

    Args:
        values: What was compared of live and of the candidate (`compared_values.both`).
        live: The one job.
        candidate: The other.
    """
    schemas = [parsing.declared(side.output_schema) for side in (live, candidate)]
    # One row a side.
    found = [nulls.counted(rows, schema).collect()[0].asDict() for rows, schema in zip(values, schemas, strict=True)]
    sides = [{name: row[name] for name in schema.names} for row, schema in zip(found, schemas, strict=True)]
    return Nulls((found[0][nulls.VALUES], found[1][nulls.VALUES]), *sides)


def gated(
    verdict: str, reason: str, found: Mapping[str, Share], most: float, volatile: Collection[str] = ()
) -> tuple[str, str]:
    """Return a verdict and its reason, with what the gate adds: it turns a pass into a fail.

    Args:
        verdict: The verdict so far.
        reason: Why it is not a pass.
        found: Shares of nulls, by column (`Nulls.shares`).
        most: By how much the candidate's share may exceed live's.
        volatile: Columns whose values count for nothing: for these the shares may not be further apart either way.
    """
    above = {name: share.candidate - share.live for name, share in found.items()}
    wrong = {name: found[name] for name, by in above.items() if (abs(by) if name in volatile else by) > most}
    if not wrong or verdict == lifecycle.ERROR:
        return verdict, reason
    told = [f"{name} is null in {share.candidate:.1%}, in live in {share.live:.1%}" for name, share in wrong.items()]
    return lifecycle.FAIL, "; ".join([*([reason] if reason else []), *told])
