"""Airflow's scheduler and API server die while a step runs: the rewind goes on once they are back."""

from __future__ import annotations

from rewind.local import processes
from rewind.registry.database import now
from tests.scenarios.airflow_life import visit
from tests.support.stage import Stage
from tests.support.workshop import wait_for

STEPS = ("backfill", "cut_over")
PARTS = ("scheduler", "api-server")


def killed_in(stage: Stage, records: int) -> dict[str, tuple[int, float]]:
    """Rewind once, both servers killed in each of `STEPS`; return the step's attempts and live's longest gap, s."""
    live = stage.live()
    run_id, rewind_id = stage.begin(same_code=True, auto_approve=True)
    seen: dict[str, tuple[int, float]] = {}
    for step in STEPS:
        wait_for(f"{step} begun", lambda step=step: _attempts(stage, rewind_id, step) > 0)
        begun = now()
        for part in PARTS:
            process = processes.load(part, stage.home / "stack")
            assert process is not None
            processes.kill([process])
        for n in range(records):
            stage.shop.produce(visit(n), partition=n % len(stage.shop.end()))
        stage.at_end(live)
        gap = stage.shop.longest_gap(live, begun)
        stage.up()
        wait_for(f"{step} done", lambda step=step: _done(stage, rewind_id, step))
        seen[step] = (_attempts(stage, rewind_id, step), gap)
    stage.succeeded(stage.rewind_dag, run_id)
    found, _ = stage.rewind(rewind_id)
    assert found is not None
    assert (found.state, stage.live()) == ("finished", found.job_id)
    return seen


def _attempts(stage: Stage, rewind_id: str, step: str) -> int:
    return sum(taken.step == step for taken in stage.rewind(rewind_id)[1])


def _done(stage: Stage, rewind_id: str, step: str) -> bool:
    return any(taken.step == step and taken.state == "done" for taken in stage.rewind(rewind_id)[1])
