"""A life with everything in it: readers that are moved, a kill a step, a rollback, a collection and a repair."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from tests.scenarios import readers
from tests.scenarios.crashes import HALF_DONE, NOTHING_LEFT, Life
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

MERGED = ("merge", "after:repair.send")
REPAIR = "rw-00000000a2"


def test_readers_kills_a_rollback_a_collection_and_a_repair(workshop: Callable[..., Workshop]) -> None:
    life = Life(workshop("read", 2), (*HALF_DONE, readers.MOVED, MERGED))
    found = readers.check(life, readers=3, records=90, seed=1)
    assert found["groups"] == 3
    assert found["repeats"] > 0
    assert found["left_out"] > 0
    assert life.states() == {"read-g1": "live", "read-g2": "standby"}

    life.collect("read-g2")
    assert life.states() == {"read-g1": "live", "read-g2": "collected"}
    assert life.left_of("read-g2") == NOTHING_LEFT
    # Live was deployed as epoch 1; each switch is announced, however often its task died.
    assert life.epochs() == [1, 2, 3]
    assert life.shop.holder("read-g1") is not None

    repaired(life)
    assert dict(life.killed) == dict(Counter(step for step, _ in life.points))


def repaired(life: Life) -> None:
    """Repair the first twenty offsets of partition 0 with the logic as it is now: each answer once, with its number."""
    shop = life.shop
    first = json.dumps({shop.topic: {"0": 0, "1": 0}})
    shop.planned(REPAIR, **{"from": first, "to": json.dumps({shop.topic: {"0": 20, "1": 0}})})
    for step in ("spin_up", "backfill", "validate"):
        shop.step(step, REPAIR)
    shop.approve(REPAIR, "the filter is what was wrong")
    life.step("merge", "--rewind-id", REPAIR)
    made = [r for r in shop.read("read-out-g1") if r.headers.get("rewind-repair") == "1"]
    sources = {r.headers["rewind-source"].split(":", 1)[1] for r in made}
    # Of the visits 0, 2, 4 ... the logic leaves out each fifth number.
    assert sources == {f"0:{n}" for n in range(20) if (2 * n) % 5}
