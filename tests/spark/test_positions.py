"""Where a reader of one output goes on in another: against a model that walks both outputs record by record."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession

from rewind.core.model import Topic
from rewind.core.planning.consumer_groups import Held, Move, Sides
from rewind.steps.lifecycle.consumer_groups import Seen, marks_of, move_of
from tests.support.fakes import generation
from tests.support.tiers import one_soon

PLACED = "p int, o long, n int, repair int, out_partition int, out_offset long"
SIDES = Sides(generation(number=1), generation(number=2))


@dataclass
class Output:
    """An output topic: per partition the coordinates of its rows, in order; a repaired row has its number too."""

    parts: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)

    def rows(self):
        return [(*row, p, offset) for p, part in self.parts.items() for offset, row in enumerate(part)]

    def topic(self, name):
        return Topic(name, "id", dict.fromkeys(self.parts, 0), {p: len(part) for p, part in self.parts.items()})


def output(*parts: list[tuple[int, int]]) -> Output:
    return Output({p: [(*place, 0, 0) for place in part] for p, part in enumerate(parts)})


def moved(spark: SparkSession, old: Output, new: Output, held: Held, at: dict, **back: int) -> Move:
    frames = [spark.createDataFrame(side.rows(), PLACED) for side in (old, new)]
    low, _ = marks_of(frames[0], held, at)
    low = {p: back.get(f"p{p}", offset) for p, offset in low.items()}
    return move_of(Seen(SIDES, *frames, new.topic("out-g2"), {}), held, low)


def held(read: dict, before: dict | None = None, started: dict | None = None) -> Held:
    return Held("shop", read, before or {}, started or {})


def test_a_reader_resumes_at_its_first_unread_record(spark: SparkSession) -> None:
    both = output([(0, o) for o in range(6)])
    found = moved(spark, both, both, held({0: 4}), {0: 6})
    assert (found.positions, found.repeats, found.left_out, found.dropped) == ({0: 4}, 0, 0, 0)


def test_another_order_costs_repeats_that_are_counted(spark: SparkSession) -> None:
    # Old took turns between the source partitions, new was backfilled one after the other.
    old = output([(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)])
    new = output([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)])
    found = moved(spark, old, new, held({0: 4}), {0: 3, 1: 3})
    assert (found.positions, found.repeats) == ({0: 2}, 2)


def test_records_that_only_the_new_output_has_are_left_out_and_listed(spark: SparkSession) -> None:
    old = output([(0, 0), (0, 2), (0, 4)])
    new = output([(0, o) for o in range(5)])
    found = moved(spark, old, new, held({0: 2}), {0: 5})
    assert (found.positions, found.left_out, found.listed) == ({0: 4}, 2, ("0:1", "0:3"))


def test_or_replayed_from_a_source_offset(spark: SparkSession) -> None:
    old = output([(0, 0), (0, 2), (0, 4)])
    new = output([(0, o) for o in range(5)])
    found = moved(spark, old, new, held({0: 3}), {0: 5}, p0=2)
    assert (found.positions, found.repeats, found.listed) == ({0: 3}, 1, ("0:1",))
    found = moved(spark, old, new, held({0: 3}), {0: 5}, p0=0)
    assert (found.positions, found.repeats, found.listed) == ({0: 1}, 2, ())


def test_what_the_new_output_has_no_row_of_is_told(spark: SparkSession) -> None:
    found = moved(spark, output([(0, 0), (0, 1), (0, 2)]), output([(0, 0), (0, 2)]), held({0: 1}), {0: 3})
    assert (found.positions, found.dropped) == ({0: 1}, 1)


def test_a_reader_that_has_read_all_waits_at_the_end(spark: SparkSession) -> None:
    both = output([(0, 0)], [(0, 1)])
    assert moved(spark, both, both, held({0: 1, 1: 1}), {0: 2}).positions == {0: 1, 1: 1}


def test_a_partition_it_never_read_is_unread(spark: SparkSession) -> None:
    both = output([(0, 0)], [(0, 1)])
    assert moved(spark, both, both, held({0: 1}), {0: 2}).positions == {0: 1, 1: 0}


def test_a_repaired_row_is_unread_though_the_row_before_it_was_read(spark: SparkSession) -> None:
    old = output([(0, 0), (0, 1)])
    old.parts[0].append((0, 0, 0, 1))
    new = output([(0, 0), (0, 1)])
    found = moved(spark, old, new, held({0: 2}), {0: 2})
    assert (found.positions, found.repeats) == ({0: 0}, 1)
    assert moved(spark, old, new, held({0: 3}), {0: 2}).positions == {0: 2}


def test_what_was_read_in_the_new_output_before_is_no_news(spark: SparkSession) -> None:
    # Back to an output that it has read up to 3, of which the record 1 is in no other.
    both = output([(0, 0), (0, 1), (0, 2), (0, 3)]), output([(0, 0), (0, 2), (0, 3)])
    back = moved(spark, both[1], both[0], held({0: 2}, {0: 2}), {0: 4})
    assert (back.positions, back.left_out, back.repeats) == ({0: 3}, 0, 0)
    # Moved there at 1, it never read what lies before.
    back = moved(spark, both[1], both[0], held({0: 2}, {0: 1}, {0: 1}), {0: 4})
    assert (back.positions, back.listed) == ({0: 3}, ("0:1",))


@pytest.mark.parametrize("seed", one_soon((seed,) for seed in range(8)))
def test_no_record_is_missed_and_repeats_are_those_reported(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    old, new = drawn(rng), drawn(rng)
    read = {p: rng.randint(0, len(part)) for p, part in old.parts.items()}
    found = moved(spark, old, new, held(read), {0: 30, 1: 30})

    taken = {row[:3] for p, part in old.parts.items() for row in part[: read[p]]}
    unread = {row[:3] for part in old.parts.values() for row in part} - taken
    low = {p: min([o for q, o, _ in unread if q == p], default=30) for p in (0, 1)}
    ahead = [row[:3] for p, part in new.parts.items() for row in part[found.positions[p] :]]
    everything = {row[:3] for part in new.parts.values() for row in part}
    missed = everything - taken - set(ahead)

    assert missed & unread == set(), "what the old output has, and the reader has not read"
    assert found.repeats == sum(place in taken for place in ahead)
    in_old = taken | unread
    assert sorted(found.listed) == sorted(f"{p}:{o}" for p, o, _ in missed - in_old)
    assert found.dropped == len(unread - everything)
    for p, position in found.positions.items():
        first = new.parts[p][position : position + 1]
        assert all(row[:3] not in taken and row[1] >= low[row[0]] for row in first), "it could begin later"


def drawn(rng: random.Random) -> Output:
    """An output of two source partitions in two partitions by key, some records dropped and some written twice."""
    made = Output({0: [], 1: []})
    sources = {p: [o for o in range(30) if rng.random() < 0.8] for p in (0, 1)}
    while any(sources.values()):
        p = rng.choice([p for p, left in sources.items() if left])
        for o in [sources[p].pop(0) for _ in range(min(rng.randint(1, 6), len(sources[p])))]:
            made.parts[(p + o) % 2].extend([(p, o, 0, 0)] * rng.choice([1, 1, 1, 2]))
    return made
