"""What is planted into rows that are otherwise equal on both sides, and what a comparison must count of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

Row = Mapping[str, str]
"""What of a row is otherwise, as SQL; `s` is the number that its content is made from."""
SAME: Row = {}


@dataclass(frozen=True)
class Kind:
    """One way in which what both sides hold of a number can stand to each other.

    Attributes:
        live: Rows of live; none for none.
        candidate: Rows of the candidate.
        counts: What is counted of it.
        fields: Names of the fields that differ, of that class.
    """

    live: Sequence[Row] = (SAME,)
    candidate: Sequence[Row] = (SAME,)
    counts: Mapping[str, int] = field(default_factory=lambda: {"equal": 1})
    fields: Sequence[str] = ()


class Counted(Protocol):
    """What a comparison found."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Rows by class."""

    @property
    def fields(self) -> Mapping[str, Mapping[str, int]]:
        """Rows by class and differing field."""


def changed(*fields: str, **columns: str) -> Kind:
    """Return a kind that is changed in some fields, with the candidate's columns."""
    return Kind(candidate=(columns,), counts={"changed": 1}, fields=fields)


def equal(**columns: str) -> Kind:
    """Return a kind that is equal although the candidate's columns are not."""
    return Kind(candidate=(columns,))


def rows(sides: Sequence[Sequence[Row]], columns: Mapping[str, str]) -> Column:
    """Return the rows of one side at a number `s`, as an array of structs.

    Args:
        sides: The rows of each kind on that side; the column `planted` tells the number of the kind, null for none.
        columns: The columns of an unplanted row, as SQL in which `{s}` stands for its number.
    """
    same = F.array(_row(SAME, columns))
    found = same
    for number, made in enumerate(sides):
        if list(made) != [SAME]:
            there = F.array(*(_row(row, columns) for row in made)) if made else F.filter(same, lambda _: F.lit(False))
            found = F.when(F.col("planted") == number, there).otherwise(found)
    return found


def _row(row: Row, columns: Mapping[str, str]) -> Column:
    number = row.get("s", "s")
    return F.struct(*(F.expr(row.get(name, sql.format(s=number))).alias(name) for name, sql in columns.items()))


def spread(kinds: Sequence[str], each: int, below: int, pairs: str = "", first: int = 0) -> Column:
    """Return the number of the kind that is planted at a number `s` when so many of each are planted, all over.

    Args:
        kinds: Their names.
        each: How many of each.
        below: They are planted below this number.
        pairs: The kind that is planted at a number and at the one after it.
        first: They are planted from this number on.
    """
    step = (below - first) // (each * len(kinds))
    # A kind has a pair of numbers to itself, an even and an odd one.
    step -= step % 2
    assert step >= 2, "too few rows"
    at = F.col("s") - first
    place = F.floor(at / step)
    kind = (place % len(kinds)).cast("int")
    here = at % step == 0
    if pairs:
        here = here | ((at % step == 1) & (kind == kinds.index(pairs)))
    return F.when((at >= 0) & (place < each * len(kinds)) & here, kind)


def wanted(judged: int, kinds: Mapping[str, Kind], planted: Mapping[str, int], **beside: int) -> dict[str, object]:
    """Return the counts that are not 0, and the fields, that a comparison must give.

    Args:
        judged: How many are compared.
        kinds: What may be planted.
        planted: How many of each are.
        beside: What else is counted.
    """
    counts: Counter[str] = Counter(equal=judged - sum(planted.values()), rows=judged, **beside)
    fields: dict[str, Counter[str]] = {}
    for name, coordinates in planted.items():
        made = kinds[name]
        counts.update({kind: number * coordinates for kind, number in made.counts.items()})
        for named in made.fields:
            (of,) = made.counts.keys() - {"dead_letters"}
            fields.setdefault(of, Counter())[named] += coordinates
    return _form(counts, fields)


def told(found: Counted) -> dict[str, object]:
    """Return what was found in the same form."""
    return _form(found.counts, found.fields)


def _form(counts: Mapping[str, int], fields: Mapping[str, Mapping[str, int]]) -> dict[str, object]:
    some = {kind: number for kind, number in counts.items() if number}
    return {**some, "fields": {kind: dict(named) for kind, named in fields.items()}}
