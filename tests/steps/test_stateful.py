"""A pipeline with state is rewound: its state is rebuilt from the mirror, and Kafka takes it over."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rewind.core.model import Batch
from rewind.registry import chunk_log, progress
from rewind.runtime import evidence
from tests.scenarios.late_visits import produce, visits
from tests.support import oracle
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(900)]


def batches(shop: Workshop, job_id: str) -> list[Batch]:
    with shop.registry() as connection:
        return progress.recent(connection, job_id, 10_000)[::-1]


@pytest.mark.shows("stateful", handed_over="windows equal the oracle of both jobs")
def test_its_state_is_rebuilt_and_taken_over(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("counter", 2, like="visits_window_counter", backfill={"chunk_records": 300})
    live, events = shop.deploy(), {0: [], 1: []}
    shop.start(live)
    shop.start(shop.mirror)
    for part in range(3):
        produce(shop, events, visits(part, 600, 600 * part))
        shop.caught_up(live)
    shop.caught_up(shop.mirror)
    shop.planned("rw-state", **{"from": "earliest", "same_code": True})
    for step in ("spin_up", "backfill"):
        shop.step(step, "rw-state")
    with shop.registry() as connection:
        chunks = chunk_log.read(connection, "rw-state")
    assert [chunk.state for chunk in chunks] == ["done"] * len(chunks)
    assert len(chunks) >= 6
    handoff = shop.position("counter-g2")
    shop.start("counter-g2")
    produce(shop, events, visits(9, 600, 1_800))
    for job in (live, "counter-g2"):
        shop.caught_up(job)

    for job in (live, "counter-g2"):
        done = batches(shop, job)
        assert oracle.contiguous(done, {0: 0, 1: 0}) == shop.end()
        found, wanted = oracle.newest(shop.read(f"counter-out-g{job[-1]}")), oracle.counted(done, events)
        assert found == wanted
    assert handoff == {0: 900, 1: 900}

    shop.step("validate", "rw-state")
    verdict = shop.verdict("rw-state")
    print(verdict.counts, verdict.sample[:3])
    assert (verdict.verdict, verdict.reason) == ("pass", "")
    # Asked again, it goes on from there: what closed since is added.
    produce(shop, events, visits(10, 300, 2_400))
    for job in (live, "counter-g2"):
        shop.caught_up(job)
    shop.step("validate", "rw-state")
    told = json.loads((evidence.folder_of(shop.settings, "rw-state") / "verdict-2.json").read_text())
    assert (told["verdict"], told["taken_up"]["attempt"]) == ("pass", 1)
    assert told["counts"]["rows"] == told["counts"]["equal"] > verdict.counts["rows"]
    shop.approve("rw-state")
    shop.step("cut_over", "rw-state")
