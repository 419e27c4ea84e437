"""Consumers of a pipeline's output that resume after a switch and a rollback, drawn, and held against what was told."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from rewind.core import coordinates
from rewind.core.offsets import Vector
from rewind.core.planning import consumer_groups
from rewind.core.planning.consumer_groups import Move
from rewind.registry import schema
from rewind.runtime.kafka.broker import Broker
from tests.scenarios.crashes import Life, visit
from tests.support.workshop import Record, Workshop

REWIND, ROLLBACK = "rw-00000000a1", "rb-00000000a1"
MOVED = ("cut_over", "after:consumers.move")
"""Where the mover of consumer groups is killed."""
SELECTED = "    return visits.select("
WITHOUT = '    return visits.where("visit_id % {} <> 0").select('


@dataclass
class Reader:
    """One consumer group: what it has read, by source coordinate."""

    shop: Workshop
    group: str
    read: set[str] = field(default_factory=set)

    def at(self, topic: str, records: Sequence[Record]) -> Vector:
        """Return its positions in a topic; where it has none, the beginning."""
        found = Broker(self.shop.settings).group_offsets(self.group, topic)
        return {p: found.get(p, 0) for p in {r.partition for r in records}}

    def ahead(self, topic: str, records: Sequence[Record]) -> list[str]:
        """Return the sources of the records that it would read now."""
        at = self.at(topic, records)
        return [source(r) for r in records if r.offset >= at[r.partition]]

    def read_on(self, topic: str, records: Sequence[Record], rng: random.Random) -> None:
        """Read some way on in each partition, and commit."""
        at = self.at(topic, records)
        ends = {p: max(r.offset for r in records if r.partition == p) + 1 for p in at}
        upto = {p: rng.randint(at[p], ends[p]) for p in at}
        self.read |= {source(r) for r in records if at[r.partition] <= r.offset < upto[r.partition]}
        Broker(self.shop.settings).commit(self.group, topic, upto)


def check(life: Life, readers: int, records: int, seed: int) -> Counter[str]:
    """Draw readers, switch with `keep` and roll back with `replay`; return what was counted in all."""
    shop, rng = life.shop, random.Random(seed)
    shop.edit_logic(SELECTED, WITHOUT.format(7))
    produce(shop, 0, records)
    old = shop.deploy()
    for owner in (old, shop.mirror):
        shop.start(owner)
        shop.caught_up(owner)
    shop.stop(shop.mirror)
    drawn = [Reader(shop, f"{shop.pipeline}-reader-{n}") for n in range(readers)]
    outputs = [f"{shop.pipeline}-out-g{n}" for n in (1, 2)]
    for reader in drawn:
        reader.read_on(outputs[0], shop.read(outputs[0]), rng)
    new = switch(life, [reader.group for reader in drawn], records)
    found = Counter({"groups": readers})
    found += hold(drawn, outputs[1], shop.read(outputs[0]), moves(shop, REWIND))

    produce(shop, 2 * records, records // 2)
    for job in (old, new):
        shop.caught_up(job)
    for reader in drawn:
        reader.read_on(outputs[1], shop.read(outputs[1]), rng)
    roll_back(life)
    back = moves(shop, ROLLBACK)
    assert [move.left_out for move in back.values()] == [0] * readers, "all was replayed"
    return found + hold(drawn, outputs[0], shop.read(outputs[1]), back)


def hold(readers: Sequence[Reader], topic: str, other: Sequence[Record], told: dict[str, Move]) -> Counter[str]:
    """Hold what each reader would read now against what was told of its move."""
    total: Counter[str] = Counter()
    records = readers[0].shop.read(topic)
    before = {source(r) for r in other}
    for reader in readers:
        move = told[reader.group]
        assert Broker(reader.shop.settings).group_offsets(reader.group, topic) == move.positions
        ahead = reader.ahead(topic, records)
        missed = {source(r) for r in records} - reader.read - set(ahead)
        left_out = {f"{records[0].headers[coordinates.SOURCE].split(':')[0]}:{place}" for place in move.listed}
        assert missed == left_out, reader.group
        assert not missed & before, "what the other output has is never left out"
        repeats = sum(place in reader.read for place in ahead)
        assert repeats == move.repeats, reader.group
        total += Counter(repeats=repeats, left_out=len(missed))
    return total


def switch(life: Life, groups: Sequence[str], records: int) -> str:
    """Rewind with other logic while more is produced, and switch."""
    shop = life.shop
    shop.edit_logic(WITHOUT.format(7), WITHOUT.format(5))
    plan = shop.planned(REWIND, consumer_groups=list(groups))
    for step in ("spin_up", "backfill"):
        life.step(step, "--rewind-id", REWIND)
    shop.start(plan.job_id)
    produce(shop, records, records)
    for job in (plan.live_job_id, plan.job_id):
        shop.caught_up(job)
    shop.step("validate", REWIND)
    shop.approve(REWIND, "the filter is what was wrong")
    life.step("cut_over", "--rewind-id", REWIND)
    return plan.job_id


def roll_back(life: Life) -> None:
    """Go back, the groups with the pointer: those that the switch moved need not be named again."""
    asked = json.dumps({"dry_run": False, "reason": "drawn", "only_new": consumer_groups.REPLAY})
    life.step("rollback", "--rollback-id", ROLLBACK, "--pipeline", life.shop.pipeline, "--request", asked)


def moves(shop: Workshop, move_id: str) -> dict[str, Move]:
    """Return the moves of a switch, all of which were made."""
    table = schema.consumer_moves
    with shop.registry() as connection:
        rows = connection.execute(select(table).where(table.c.move_id == move_id)).all()
    assert {row.state for row in rows} == {"moved"}
    return {row.group: consumer_groups.from_json(row.body) for row in rows}


def produce(shop: Workshop, first: int, count: int) -> None:
    """Produce visits, spread over the partitions."""
    partitions = len(shop.end())
    for p in range(partitions):
        shop.produce(*(visit(n) for n in range(first + p, first + count, partitions)), partition=p)


def source(record: Record) -> str:
    """Return where a record came from."""
    return record.headers[coordinates.SOURCE]
