"""New logic that differs only in what comes after the switch, under a real scheduler that rolls it back by itself."""

from __future__ import annotations

import json

from rewind.declared import forms
from rewind.registry import generations
from rewind.runtime.rollback import done
from tests.scenarios.crashes import visit
from tests.support.stage import Stage
from tests.support.workshop import wait_for

LATE = 1_000
PLANTED = f'F.when(F.col("visit_id") >= {LATE}, F.upper("page")).otherwise(F.col("page")).alias'


def rolled_back_by_itself(stage: Stage) -> None:
    """Switch to the planted logic, produce what it gets wrong, and see the pointer return without a hand."""
    shop, name = stage.shop, stage.shop.pipeline
    shop.produce(*(visit(n) for n in range(100)))
    old, new = stage.deploy(), f"{name}-g2"
    shop.edit_logic('F.col("page").alias', PLANTED)
    asked = {"observe": "PT1H", "grace": "PT2H", "compare_every": "PT30S", "on_difference": "roll_back"}
    run_id, rewind_id = stage.begin(auto_approve=True, **asked)
    wait_for("the switch", lambda: stage.live() == new, 400)
    shop.produce(*(visit(n) for n in range(LATE, LATE + 7)))
    assert stage.ended(stage.rewind_dag, run_id) == "failed"
    assert "DIFFERENCES: 7 changed" in stage.failures(stage.rewind_dag, run_id)

    back = f"observed.{rewind_id}"
    stage.succeeded(f"rollback_{name}", back)
    assert stage.live() == old
    found, _ = stage.rewind(rewind_id)
    assert found is not None
    assert found.state == "rolled_back"
    with shop.registry() as connection:
        made = done(connection, forms.rollback_id(f"rollback_{name}", back))
        assert generations.read(connection, new).state == "standby"
    assert made is not None
    assert made["reason"].startswith(f"{rewind_id}: ")
    assert made["reason"].endswith("DIFFERENCES: 7 changed")
    pages = {json.loads(r.value)["visited_page"] for r in shop.read(f"{name}-out-g1") if r.value}
    assert pages == {"home"}
