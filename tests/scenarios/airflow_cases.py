"""What a person may do in Airflow to a lifecycle that runs: case C28, supervisors that are lost, starts at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from rewind.airflow_api.client import AirflowApi, AirflowApiError
from rewind.core import lifecycle
from rewind.declared import forms
from rewind.registry import generations, rewinds, schema, streams
from rewind.runtime.drivers import supervise
from rewind.views.pointer import resolve
from tests.support.stage import RUN_SECONDS, Stage
from tests.support.workshop import wait_for

STARTS = 8


def c28_backfill_cleared(stage: Stage) -> None:
    """(a) Only the backfill is cleared while its verdict waits for an answer: the cut-over acts on no stale verdict."""
    before = _pointer(stage)
    run_id, rewind_id = stage.begin(same_code=True, grace="PT1H")
    _asked(stage, run_id)
    _again(stage, run_id, rewind_id, "backfill", 2)
    stage.answer(run_id)
    assert stage.ended(stage.rewind_dag, run_id) == "failed"
    refused = "validated attempt 1 of backfill, backfilled attempt 2"
    assert refused in stage.failures(stage.rewind_dag, run_id)
    wait_for("the abort", lambda: _state(stage, rewind_id) == lifecycle.ABORTED)
    assert _pointer(stage) == before


def c28_start_and_cut_over_cleared(stage: Stage) -> None:
    """(b) A cut-over that is cleared after its switch makes no second one; (c) nor does a start make a second job."""
    job_id, epoch = _pointer(stage)
    run_id, rewind_id = stage.begin(same_code=True, observe="PT1H", grace="PT2H")
    _asked(stage, run_id)
    found = stage.rewind(rewind_id)[0]
    assert found is not None
    made, holder = _made(stage), stage.shop.holder(found.job_id)
    _again(stage, run_id, rewind_id, "start_candidate", 2)
    assert _made(stage) == made
    assert stage.shop.holder(found.job_id) == holder

    stage.answer(run_id)
    wait_for("the cut-over", lambda: _attempts(stage, rewind_id, "cut_over") == ["done"])
    assert _pointer(stage) == (found.job_id, epoch + 1)
    _again(stage, run_id, rewind_id, "cut_over", 2)
    assert _pointer(stage) == (found.job_id, epoch + 1)
    assert f"already done: {found.job_id} is live at epoch {epoch + 1}" in _log(stage, run_id, "cut_over")
    with stage.shop.registry() as connection:
        rewinds.fix(connection, rewind_id, "finish_now", True)
    stage.succeeded(stage.rewind_dag, run_id)
    assert generation_states(stage)[job_id] == lifecycle.STANDBY


def c28_collection_cleared(stage: Stage, times: int = 2) -> None:
    """(d) A collection that is cleared finds nothing more and succeeds."""
    run_id = stage.run("collect_garbage", {"dry_run": False})
    deletions, made = _deletions(stage), _made(stage)
    for number in range(2, 2 + times):
        stage.api.clear("collect_garbage", run_id, ["collect_garbage"])
        wait_for("the next try", lambda n=number: _tries(stage, "collect_garbage", run_id, "collect_garbage") == n)
        stage.succeeded("collect_garbage", run_id)
        assert (_deletions(stage), _made(stage)) == (deletions, made)


LOSSES: Mapping[str, Callable[[Stage, str, str], None]] = {
    "failed": lambda stage, dag_id, run_id: stage.mark_run(dag_id, run_id, "failed"),
    "cleared": lambda stage, dag_id, run_id: stage.api.clear(dag_id, run_id, ["supervise"]),
    "deleted": lambda stage, dag_id, run_id: stage.delete_run(dag_id, run_id),
}


def c10_cut_over_only_marked(stage: Stage) -> None:
    """Mark a cut-over as done that was not: nothing of live is collected, and no later task believes the mark."""
    live, topics = stage.live(), set(stage.shop_topics())
    run_id, rewind_id = stage.begin(same_code=True, grace="PT5S")
    wait_for("the question", lambda: bool(stage.api.hitl_pending(stage.rewind_dag, run_id)), 300)
    stage.mark(run_id, "cut_over", "success")
    garbage = stage.run("collect_garbage", {"dry_run": False})
    assert stage.live() == live
    assert topics <= set(stage.shop_topics())
    assert stage.shop.holder(live) is not None
    log = stage.api.task_log("collect_garbage", garbage, "collect_garbage", 1)
    assert f"{live} (" not in log

    stage.answer(run_id, "Reject", "it was only marked")
    assert stage.ended(stage.rewind_dag, run_id) == "failed"
    wait_for("the abort", lambda: _state(stage, rewind_id) == "aborted")
    assert stage.live() == live
    assert topics == set(stage.shop_topics())


def supervisor_lost(stage: Stage, owner: str, how: str) -> None:
    """A stream's supervisor is failed, cleared or deleted: the driver lives on, and the next one attaches to it."""
    holder, starts = stage.shop.holder(owner), stage.starts(owner)
    assert holder is not None
    dag_id = f"stream_{stage.shop.pipeline}"
    lost = _supervisors(stage, dag_id, owner)
    assert lost
    for run_id in lost:
        LOSSES[how](stage, dag_id, run_id)
    if how != "cleared":
        stage.start("watch_streams", {})

    def replaced() -> bool:
        stage.keep_up()
        return bool(_supervisors(stage, dag_id, owner).items() - lost.items())

    wait_for("the next supervisor", replaced)
    attached = f"{owner}: running, pid {holder.processes[0].pid}"
    for run_id, number in _supervisors(stage, dag_id, owner).items() - lost.items():
        wait_for(attached, lambda r=run_id, n=number: attached in _log_of(stage, dag_id, r, "supervise", n))
    assert stage.shop.holder(owner) == holder
    assert stage.starts(owner) == starts


def starts_at_once(stage: Stage) -> int:
    """Start several rewinds of one pipeline at once over REST; return how many became active: the rest are refused."""
    made = _made(stage)
    barrier = threading.Barrier(STARTS)
    with ThreadPoolExecutor(STARTS) as pool:
        runs = list(pool.map(lambda _: _start(stage, barrier), range(STARTS)))
    wait_for("the winner", lambda: _active(stage) is not None, RUN_SECONDS)
    winner = _active(stage)
    losers = [run_id for run_id in runs if forms.rewind_id(stage.rewind_dag, run_id) != winner]
    for run_id in losers:
        assert stage.ended(stage.rewind_dag, run_id) == "failed"
        assert f"rewind {winner} of {stage.shop.pipeline} is active" in stage.failures(stage.rewind_dag, run_id)
    (won,) = set(runs) - set(losers)
    _asked(stage, won)
    topics, jobs, folders = ({*after} - {*before} for after, before in zip(_made(stage), made, strict=True))
    assert (len(topics), len(jobs), len(folders)) == (2, 1, 1)
    stage.answer(won, "Reject", "one of many")
    wait_for("the abort", lambda: _active(stage) is None)
    return STARTS - len(losers)


def c04_topic_recreated(stage: Stage) -> None:
    """A topic is made anew, shorter or longer than before: neither a stream nor a plan takes it for the old one."""
    shop, live, stored = stage.shop, stage.live(), stage.shop.end()
    stage.at_end(live)
    stage.at_end(shop.mirror)
    for owner in (live, shop.mirror):
        shop.wish(owner, streams.DRAIN)
        supervise.end(shop.settings, owner)
    shop.delete_topic(shop.topic)
    shop.create_topic(shop.topic, len(stored))
    for more in (300, 400):
        shop.produce(*((b"k", b"{}") for _ in range(more)))
        told = f"partition 0: stored {stored[0]}, earliest 0, latest {shop.end()[0]}"
        shop.wish(live)
        stage.start("watch_streams", {})
        wait_for(told, lambda t=told: t in _last_failure(stage, live))
        run_id, rewind_id = stage.begin(same_code=True)
        assert stage.ended(stage.rewind_dag, run_id) == "failed"
        assert told in stage.failures(stage.rewind_dag, run_id)
        assert stage.rewind(rewind_id)[0] is None
        shop.wish(live, streams.DRAIN)


def _last_failure(stage: Stage, owner: str) -> str:
    with stage.shop.registry() as connection:
        return streams.needed(connection, owner).last_failure or ""


def generation_states(stage: Stage) -> dict[str, str]:
    with stage.shop.registry() as connection:
        return {g.job_id: g.state for g in generations.all_of(connection, stage.shop.pipeline)}


def _start(stage: Stage, barrier: threading.Barrier) -> str:
    """Ask for a run together with others, again when Airflow's database was busy, and return its id."""
    api, run_id = stage.stack.api(), f"at-once-{uuid4()}"
    # A login before the start, so that all arrive together.
    api.dag_runs(stage.rewind_dag)
    barrier.wait()
    wait_for(f"run {run_id}", lambda: _accepted(api, stage.rewind_dag, run_id))
    return run_id


def _accepted(api: AirflowApi, dag_id: str, run_id: str) -> bool:
    conf = {"dry_run": False, "same_code": True, "observe": "PT5S", "grace": "PT1H"}
    try:
        api.trigger(dag_id, conf, run_id=run_id)
    except AirflowApiError as refused:
        if refused.status < 500:
            # The first answer was lost, not the run.
            return refused.status == 409
        return False
    return True


def _active(stage: Stage) -> str | None:
    with stage.shop.registry() as connection:
        found = rewinds.active_of(connection, stage.shop.pipeline)
    return found.id if found else None


def _asked(stage: Stage, run_id: str) -> None:
    wait_for("the question", lambda: bool(stage.api.hitl_pending(stage.rewind_dag, run_id)), RUN_SECONDS)


def _again(stage: Stage, run_id: str, rewind_id: str, step: str, attempt: int) -> None:
    """Clear one task alone and wait until its next attempt is done."""
    stage.api.clear(stage.rewind_dag, run_id, [step], downstream=False)
    wait_for(f"attempt {attempt} at {step}", lambda: _attempts(stage, rewind_id, step)[attempt - 1 :] == ["done"])


def _attempts(stage: Stage, rewind_id: str, step: str) -> list[str]:
    return [s.state for s in stage.rewind(rewind_id)[1] if s.step == step]


def _state(stage: Stage, rewind_id: str) -> str:
    found = stage.rewind(rewind_id)[0]
    assert found is not None
    return found.state


def _pointer(stage: Stage) -> tuple[str, int]:
    found = resolve(stage.shop.pipeline, stage.shop.settings.registry_url)
    return found.job_id, found.epoch


def _made(stage: Stage) -> tuple[list[str], list[str], list[str]]:
    """Return the topics, the jobs that are not collected, and the folders that there are."""
    folders = sorted(path.name for path in stage.shop.settings.generations.iterdir())
    jobs = sorted(j for j, state in generation_states(stage).items() if state != lifecycle.COLLECTED)
    return stage.shop_topics(), jobs, folders


def _deletions(stage: Stage) -> int:
    with stage.shop.registry() as connection:
        return len(connection.execute(schema.deletions.select()).all())


def _tries(stage: Stage, dag_id: str, run_id: str, task_id: str) -> int:
    return next(t["try_number"] for t in stage.api.task_instances(dag_id, run_id) if t["task_id"] == task_id)


def _log(stage: Stage, run_id: str, task_id: str) -> str:
    return _log_of(stage, stage.rewind_dag, run_id, task_id, _tries(stage, stage.rewind_dag, run_id, task_id))


def _log_of(stage: Stage, dag_id: str, run_id: str, task_id: str, number: int) -> str:
    """Return the log of a try; empty before it has one."""
    try:
        return stage.api.task_log(dag_id, run_id, task_id, number)
    except AirflowApiError as refused:
        if refused.status == 404:
            return ""
        raise


def _supervisors(stage: Stage, dag_id: str, owner: str) -> dict[str, int]:
    """Return the runs that supervise a stream, with the number of their task's try, from its first on."""
    active = [r["dag_run_id"] for r in stage.api.dag_runs(dag_id) if r["state"] in ("queued", "running")]
    mine = [run_id for run_id in active if run_id.startswith(f"{owner}.")]
    tries = {run_id: _tries(stage, dag_id, run_id, "supervise") for run_id in mine}
    return {run_id: number for run_id, number in tries.items() if number}
