"""Reading on where a comparison left off: what it reads is less, and what it finds is the same."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from rewind.adapters.outputs import Output
from rewind.core.horizon import first_unread
from rewind.core.model import Topic
from rewind.core.offsets import OffsetRange
from rewind.steps.compare.comparison import compared_rows
from rewind.steps.compare.findings import Found
from rewind.transforms.records.outputs import DEAD
from tests.support.compared_rows import SIDES, located

pytestmark = pytest.mark.full

FIRST = {0: OffsetRange(0, 40), 1: OffsetRange(0, 30)}
NEXT = {0: OffsetRange(40, 80), 1: OffsetRange(30, 70)}


def written(drawn: random.Random, differing: int) -> list[tuple]:
    """Return the rows of an output whose writer repeated batches and wrote its last ones after a first comparison."""
    sources = [(p, o) for o in range(100) for p in (0, 1)]
    repeats = [(p, o) for p, o in sources if drawn.random() < 0.3]
    late = sorted((*sources, *repeats), key=lambda place: place[1] + drawn.random() * 15)
    ends: dict[tuple[str, int], int] = {}
    rows = []
    for p, o in late:
        # A repeat may come to another partition: the output got more of them meanwhile.
        kind, out = (DEAD, 0) if o % 7 == 0 else ("row", drawn.choice((0, 1, 2)))
        at = ends[kind, out] = ends.get((kind, out), -1) + 1
        page = "other" if o == differing else "home"
        reason = "bad" if kind == DEAD else None
        rows.append((p, o, 0, 0, kind, b"k", f'{{"id":{o},"page":"{page}"}}'.encode(), reason, out, at))
    return rows


def output(spark: SparkSession, rows: list[tuple], name: str) -> Output:
    """Return rows as they would be read of the topics `<name>` and `<name>-dead`."""
    topics = []
    for dead in (False, True):
        ends = dict.fromkeys((0,) if dead else (0, 1, 2), 0)
        for row in rows:
            if (row[4] == DEAD) == dead:
                ends[row[8]] = max(ends[row[8]], row[9] + 1)
        topics.append(Topic(f"{name}-dead" if dead else name, f"{name}{dead}", dict.fromkeys(ends, 0), ends))
    return Output((topics[0], topics[1]), located(spark, rows))


def after(rows: list[tuple], seen: Output, unread: dict) -> list[tuple]:
    """Return the rows that a reader gets from where on it has to read."""
    starts = [first_unread(topic, unread) for topic in seen.topics]
    return [row for row in rows if row[9] >= starts[row[4] == DEAD].get(row[8], 0)]


def counts(found: Found) -> dict[str, int]:
    return dict(found.counts)


def test_what_is_left_unread_is_less_and_gives_the_same_counts(spark: SparkSession) -> None:
    for seed in range(4):
        drawn = random.Random(seed)
        sides = {"live": written(drawn, -1), "candidate": written(drawn, 45)}
        # What had been written when the first comparison read: some of it beyond its ceiling.
        seen = {name: rows[: drawn.randrange(110, 180)] for name, rows in sides.items()}
        first = {name: output(spark, rows, name) for name, rows in seen.items()}
        found = compared_rows(first["live"].rows, first["candidate"].rows, SIDES, FIRST)
        unread = {
            **first["live"].unread(found.beyond[0]),
            **first["candidate"].unread(found.beyond[1]),
        }
        full = {name: output(spark, rows, name) for name, rows in sides.items()}
        rest = {name: after(rows, full[name], unread) for name, rows in sides.items()}
        whole = compared_rows(full["live"].rows, full["candidate"].rows, SIDES, NEXT)
        bounded = compared_rows(located(spark, rest["live"]), located(spark, rest["candidate"]), SIDES, NEXT)
        assert counts(bounded) == counts(whole)
        assert bounded.beyond == whole.beyond
        assert whole.counts["changed"] == 2
        assert whole.counts["repeated"] > 0
        assert all(len(rest[name]) < len(sides[name]) for name in sides)
        # And what is read is what may hold a later source, row for row.
        for name, rows in sides.items():
            later = [row for row in rows if row[1] >= NEXT[row[0]].start]
            assert set(later) <= set(rest[name])


def test_a_copy_in_another_partition_is_not_left_out(spark: SparkSession) -> None:
    def row(o: int, out: int, at: int, kind: str = "row") -> tuple:
        return (0, o, 0, 0, kind, b"k", b"{}", None, out, at)

    rows = [row(1, 0, 4), row(50, 0, 5), row(50, 2, 9), row(2, 2, 3), row(60, 1, 7, DEAD)]
    found = compared_rows(located(spark, rows), located(spark, rows[:1]), SIDES, {0: OffsetRange(0, 40)})
    # Of offset 50 copies stand in the partitions 0 and 2 of the output: none before 5 in either, nor in what lies
    # between, where dead letters of partition 1 have place 3.
    assert found.beyond == ({0: 5, 1: 5, 2: 5, 3: 5, 4: 5}, {})
