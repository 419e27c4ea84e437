"""A whole rewind on a stage: over Airflow's REST API, from the dry run to collected garbage."""

from __future__ import annotations

import json

from rewind.registry import generations
from rewind.registry.database import now
from rewind.views.pointer import resolve
from tests.support.stage import Stage
from tests.support.workshop import wait_for

UPPER = {"expected": [{"column": "visited_page", "rule": "candidate.visited_page = upper(live.visited_page)"}]}
"""How a pipeline declares what `live_once` changes."""


def visit(n: int) -> tuple[bytes, bytes]:
    body = {"event_id": f"click-{n}", "visit_id": n, "event_time": "2025-09-04T07:00:00", "page": "home"}
    return str(n).encode(), json.dumps(body).encode()


def live_once(stage: Stage, records: int) -> None:
    """Deploy, change the code, plan, rewind by the plan, approve, switch, and collect what is past its grace."""
    shop, name = stage.shop, stage.shop.pipeline
    for partition in range(len(shop.end())):
        shop.produce(*(visit(n) for n in range(records)), partition=partition)
    assert stage.deploy() == f"{name}-g1"
    shop.edit_logic('F.col("page").alias', 'F.upper("page").alias')
    plan_id = stage.plan_of(stage.run(stage.rewind_dag, {"observe": "PT5S", "grace": "PT20S"}))
    run_id, rewind_id = stage.begin(apply_plan=plan_id)
    stage.answer(run_id)
    stage.succeeded(stage.rewind_dag, run_id)
    found, steps = stage.rewind(rewind_id)
    assert found is not None
    assert (found.state, found.plan_id, found.job_id) == ("finished", plan_id, f"{name}-g2")
    assert {step.state for step in steps} == {"done"}
    total = records * len(shop.end())
    counts = {kind: count for kind, count in shop.verdict(rewind_id).counts.items() if count}
    assert counts == {"rows": total, "expected": total}
    pointed = resolve(name, shop.settings.registry_url)
    assert (pointed.job_id, pointed.epoch, pointed.output_topic) == (f"{name}-g2", 2, f"{name}-out-g2")
    _collected(stage, f"{name}-g1")


def _collected(stage: Stage, job_id: str) -> None:
    def over() -> bool:
        with stage.shop.registry() as connection:
            until = generations.grace_until(connection, job_id)
        return until is not None and until < now()

    wait_for(f"the end of {job_id}'s grace", over)
    stage.run("collect_garbage", {"dry_run": False})
    with stage.shop.registry() as connection:
        collected = generations.read(connection, job_id)
    assert collected.state == "collected"
    assert not {collected.output_topic, collected.dead_letter_topic} & set(stage.shop_topics())
