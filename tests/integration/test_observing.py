"""New logic that differs only in what comes after the switch: it is told, and rolled back when asked to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rewind.control import generations, observing, requests
from rewind.control.rollback import done
from tests.crashes import visit
from tests.stage import Stage
from tests.workshop import Workshop, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1_200)]

LATE = 1_000
PLANTED = f'F.when(F.col("visit_id") >= {LATE}, F.upper("page")).otherwise(F.col("page")).alias'


def test_what_differs_since_the_switch_is_found_by_reading_on(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("watched", 2)
    for p in range(2):
        shop.produce(*(visit(n) for n in range(p, 300, 2)), partition=p)
    old = shop.deploy()
    for owner in (old, shop.mirror):
        shop.start(owner)
    for owner in (old, shop.mirror):
        shop.caught_up(owner)
    shop.stop(shop.mirror)
    shop.edit_logic('F.col("page").alias', PLANTED)
    plan = shop.planned("rw-watched")
    for step in ("spin_up", "backfill"):
        shop.step(step, "rw-watched")
    shop.start(plan.job_id)
    shop.caught_up(plan.job_id)
    shop.step("validate", "rw-watched")
    shop.approve("rw-watched")
    shop.produce(*(visit(n) for n in range(300, 310)))
    for owner in (old, plan.job_id):
        shop.caught_up(owner)
    assert "rechecked 10 rows since the verdict" in shop.step("cut_over", "rw-watched").output

    shop.produce(*(visit(n) for n in range(LATE, LATE + 7)), *(visit(n) for n in range(310, 315)))
    for owner in (old, plan.job_id):
        shop.caught_up(owner)
    told = shop.step("recheck", "rw-watched").output
    assert "12 rows compared since the switch, DIFFERENCES: 7 changed" in told
    shop.produce(visit(400))
    for owner in (old, plan.job_id):
        shop.caught_up(owner)
    shop.step("recheck", "rw-watched")
    with shop.registry() as connection:
        observed = observing.read(connection, "rw-watched")
        frontier = observing.frontier(connection, "rw-watched")
    assert (observed.looks, observed.rows, observed.differences) == (2, 13, {"changed": 7})
    assert [row["candidate"]["key"] for row in observed.sample] == [str(n) for n in range(LATE, LATE + 7)]
    # All that was written has been compared: the next comparison reads nothing of it.
    assert frontier is not None
    assert frontier.ceiling == shop.end()
    assert sum(sum(ends.values()) for ends in frontier.unread.values()) == 2 * 323


def test_it_is_rolled_back_by_itself(tmp_path: Path, jars: Path) -> None:
    stage = Stage(tmp_path / "home", jars, "guarded", 1)
    try:
        stage.shop.produce(*(visit(n) for n in range(100)))
        live = stage.deploy()
        stage.shop.edit_logic('F.col("page").alias', PLANTED)
        asked = {"observe": "PT1H", "grace": "PT2H", "compare_every": "PT30S", "on_difference": "roll_back"}
        run_id, rewind_id = stage.begin(auto_approve=True, **asked)
        wait_for("the switch", lambda: stage.live() == "guarded-g2", 400)
        stage.shop.produce(*(visit(n) for n in range(LATE, LATE + 7)))
        assert stage.ended(stage.rewind_dag, run_id) == "failed"
        assert "DIFFERENCES: 7 changed" in stage.failures(stage.rewind_dag, run_id)
        wait_for("the way back", lambda: stage.live() == live, 200)
        found, _ = stage.rewind(rewind_id)
        assert found is not None
        assert found.state == "rolled_back"
        stage.succeeded("rollback_guarded", f"observed.{rewind_id}")
        with stage.shop.registry() as connection:
            made = done(connection, requests.rollback_id("rollback_guarded", f"observed.{rewind_id}"))
            assert generations.read(connection, "guarded-g2").state == "standby"
        assert made is not None
        assert made["reason"].startswith(f"{rewind_id}: 7 rows compared since the switch, DIFFERENCES: 7 changed")
        pages = {json.loads(r.value)["visited_page"] for r in stage.shop.read("guarded-out-g1") if r.value}
        assert pages == {"home"}
    finally:
        stage.down()
