"""Before a rewind is taken back, the tasks that run for it are ended: in its own run, and in no other."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import FastAPI, Request

from rewind.airflow_api.in_process import AirflowPort
from rewind.core.errors import RefusedError
from rewind.declared.forms import rewind_id

DAG = "rewind_visits"
RUNS = {"manual__mine+1": {"backfill": "running", "plan": "success"}, "other": {"validate": "running"}}


def airflow(marked):
    """Return an Airflow that knows the runs above, and notes which tasks are marked."""
    app = FastAPI()

    @app.get("/api/v2/dags/{dag}/dagRuns")
    def runs(dag: str, state: str):
        assert (dag, state) == (DAG, "running")
        return {"dag_runs": [{"dag_run_id": run} for run in RUNS]}

    @app.get("/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
    def tasks(dag: str, run: str, state: str):
        return {"task_instances": [{"task_id": task} for task, is_in in RUNS[run].items() if is_in == state]}

    @app.patch("/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}")
    async def mark(dag: str, run: str, task: str, request: Request):
        marked.append((run, task, await request.json(), request.headers["authorization"]))
        return {}

    return app


@pytest.mark.parametrize(
    ("dag_id", "conf", "told"),
    [
        ("abort_visits", {"rewind_id": "rw-0123456789", "raeson": "x"}, 'raeson: abort_visits does not know "raeson"'),
        ("rollback_visits", {"dry_run": "no"}, "dry_run: 'no' is not of type 'boolean'"),
        ("rollback_visits", {"reason": ""}, "reason: is empty"),
        ("backup", {}, "dag_id: backup is no DAG of Rewind"),
    ],
)
def test_no_run_is_asked_for_that_the_form_of_its_dag_refuses(dag_id, conf, told):
    def reached():
        raise AssertionError("Airflow was asked")

    with pytest.raises(RefusedError, match=f"^{told}"):
        asyncio.run(AirflowPort(reached).trigger(Request({"type": "http"}), dag_id, conf))


def test_the_tasks_of_its_own_run_are_ended_as_the_person():
    marked = []
    scope = {"type": "http", "scheme": "http", "server": ("airflow", 80), "path": "/", "query_string": b""}
    request = Request({**scope, "headers": [(b"authorization", b"Bearer me"), (b"host", b"airflow")]})
    port = AirflowPort(lambda: airflow(marked))
    mine = rewind_id(DAG, "manual__mine+1")
    assert asyncio.run(port.end_steps(request, DAG, mine)) == ["backfill"]
    assert marked == [("manual__mine+1", "backfill", {"new_state": "failed"}, "Bearer me")]
    assert asyncio.run(port.end_steps(request, DAG, "rw-0000000000")) == []
